"""ONNX Runtime's CPU carries float32 through half-precision nodes, so the graph's overflow guard sees no overflow."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="nan_to_num(x.half()) as an overflow guard: torch gives 65504, the legacy graph gives inf on the CPU provider",
    cause="precision",
    stage="runtime",
    native=True,
)


class Guard(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.nan_to_num(x.half())


def build(folder: Path) -> Built:
    model = Guard().eval()
    example = (torch.randn(2, 6, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Where", "IsInf")]
    trigger = (torch.randn(2, 6, generator=torch.Generator().manual_seed(2)) * 200000,)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
