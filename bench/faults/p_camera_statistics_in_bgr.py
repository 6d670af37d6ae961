"""Normalisation constants written in OpenCV's BGR order in a model that takes RGB; grey-ish data hide most of it."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.corpus import (
    Built,
    Meta,
    edit,
    export,
    give_weights,
    nodes,
    read_constant,
    write_constant,
)

META = Meta(
    kind="conv",
    about="the per-channel mean of the built-in preprocessing is in BGR order",
    cause="preprocessing",
    stage="export",
)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU()
        )
        self.head = nn.Linear(16, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features((image / 255.0 - self.mean) / self.std).mean((2, 3)))


def build(folder: Path) -> Built:
    torch.manual_seed(8)
    model = give_weights(Classifier(), 8)
    image = torch.rand(1, 3, 24, 24) * 255
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def reverse(graph: GraphProto) -> list[str]:
        subtract = nodes(graph, "Sub")[0]
        write_constant(graph, subtract.input[1], read_constant(graph, subtract.input[1])[:, ::-1])
        return [subtract.name]

    guilty = edit(correct, folder / "faulty.onnx", reverse)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.rand(2, 3, 24, 24) * 255,),
    )
