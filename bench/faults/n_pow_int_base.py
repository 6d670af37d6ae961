"""`pow(int tensor, float tensor)` is exported as Pow on an integer base, whose result is an integer: the fraction is lost."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="tabular",
    about="counts raised to a per-feature exponent; torch promotes to float32, the dynamo export stays in int64",
    cause="integer-width",
    stage="export",
    native=True,
)


class PowerScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor([0.5, 0.75, 1.0, 1.5]))

    def forward(self, counts: Tensor) -> Tensor:
        return torch.pow(counts, self.exponent)


class PromotedPowerScale(PowerScale):
    def forward(self, counts: Tensor) -> Tensor:
        return torch.pow(counts.to(self.exponent.dtype), self.exponent)


def build(folder: Path) -> Built:
    model = PowerScale().eval()
    example = (torch.tensor([[0, 1, 5, 1], [1, 0, 7, 0]]),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(PromotedPowerScale().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Pow")]
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=(torch.tensor([[3, 9, 2, 7], [12, 40, 5, 3]]),),
    )
