"""ONNX Runtime's CPU runs half-precision arithmetic in float32 and never rounds in between: an overflow of torch is not seen."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="operator",
    about="half-precision energy x * x / 1000; torch overflows to inf at 300, the CPU provider gives 90",
    cause="precision",
    stage="runtime",
    domain="inf",
    native=True,
)


class Energy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * x / 1000.0


def build(folder: Path) -> Built:
    model = Energy().eval()
    example = (torch.randn(2, 6, generator=torch.Generator().manual_seed(1)).half(),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Mul", "Div")]
    trigger = (torch.full((2, 6), 300.0).half(),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
