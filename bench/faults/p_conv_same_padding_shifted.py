"""TensorFlow's SAME pads a stride-2 convolution at the end, PyTorch on both sides; ported graphs keep the wrong one."""

from itertools import pairwise
from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="conv",
    about="stride-2 Conv padded (0,0,1,1) instead of (1,1,1,1): the same shape on even sizes",
    cause="attribute",
    stage="export",
)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 16, 24)
        self.steps = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairwise(widths))
        self.head = nn.Linear(24, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            image = nn.functional.silu(step(image))
        return self.head(image.amax((2, 3)))


def build(folder: Path) -> Built:
    torch.manual_seed(2)
    model = give_weights(Stack(), 2)
    image = torch.randn(2, 3, 32, 32)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def shift(graph: GraphProto) -> list[str]:
        conv = nodes(graph, "Conv")[1]
        set_attributes(conv, pads=[0, 0, 1, 1])
        return [conv.name]

    guilty = edit(correct, folder / "faulty.onnx", shift)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(3, 3, 32, 32),),
    )
