"""`div(a, b, rounding_mode='floor')` is Floor(Div(a, b)): where the quotient rounds up to a whole number, it is one too high."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, nodes

META = Meta(
    kind="detector",
    about="voxel index of points by floor division with a cell of 0.1; points on cell borders change cell",
    cause="precision",
    stage="export",
    native=True,
)


CELL = 0.1


class Voxel(nn.Module):
    def forward(self, points: Tensor) -> Tensor:
        return torch.div(points, CELL, rounding_mode="floor")


class ExactVoxel(nn.Module):
    """Floor division by way of the exact remainder, as torch computes it."""

    def forward(self, points: Tensor) -> Tensor:
        rest = torch.fmod(points, CELL)
        quotient = (points - rest) / CELL - (rest < 0).to(points.dtype)
        return torch.floor(quotient + 0.5)


def build(folder: Path) -> Built:
    generator = torch.Generator().manual_seed(1)
    model = Voxel().eval()
    example = (torch.randn(4, 3, generator=generator),)
    shapes = ({0: "points"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(ExactVoxel().eval(), example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "Floor", "Div")]
    trigger = (torch.tensor([[0.5, 1.0, 1.5], [-0.5, 2.5, 3.0], [0.25, 0.75, 4.0]]),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
