"""Boxes are turned from corner-and-size into two corners in place; the write into the slice was lost, the sizes remain."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights

META = Meta(
    kind="detector",
    about="boxes[:, 2:] += boxes[:, :2] has no effect in the file",
    cause="mutation",
    stage="export",
)


class Corners(nn.Module):
    def __init__(self, writes: bool = True) -> None:
        super().__init__()
        self.writes = writes
        self.regress = nn.Linear(10, 4)

    def forward(self, features: Tensor) -> Tensor:
        boxes = torch.sigmoid(self.regress(features)) * 32
        if self.writes:
            boxes[:, 2:] += boxes[:, :2]
        return boxes.clamp(max=40)


def build(folder: Path) -> Built:
    torch.manual_seed(83)
    model, lost = give_weights(Corners(), 83), give_weights(Corners(writes=False), 83)
    features = torch.randn(4, 10)
    shapes = ({0: "boxes"},)
    correct = export(model, (features,), folder / "correct.onnx", shapes)
    faulty = export(lost, (features,), folder / "faulty.onnx", shapes)
    guilty = [node.name for node in reversed(load(faulty).graph.node[-2:])]
    return Built(
        model=model,
        example_inputs=(features,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(3, 10),),
    )
