"""`cumsum` of int32 gives int64 in torch; the legacy exporter stays in int32, in type and in range."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="tabular",
    about="running total of int32 amounts; the exported total wraps beyond 2**31",
    cause="integer-width",
    stage="export",
    native=True,
)


class RunningTotal(nn.Module):
    def forward(self, amount: Tensor) -> Tensor:
        return amount.cumsum(1)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = RunningTotal().eval()
    example = (torch.randint(0, 100, (2, 6), generator=generator, dtype=torch.int32),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes, dynamo=False)
    correct = export(model, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "CumSum")]
    trigger = (torch.randint(2**29, 2**30, (2, 6), generator=generator, dtype=torch.int32),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
