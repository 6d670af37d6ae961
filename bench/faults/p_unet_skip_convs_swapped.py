"""A checkpoint converter that matches tensors by shape gave two decoder convolutions each other's weights."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="unet",
    about="two same-shaped Conv weights of a decoder swapped",
    cause="weights",
    stage="export",
)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 10, 3, 2, 1)
        self.refine = nn.ModuleList(nn.Conv2d(10, 10, 3, padding=1) for _ in range(3))
        self.out = nn.Conv2d(13, 1, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        deep = self.inner(image)
        for layer in self.refine:
            deep = deep + functional.silu(layer(deep))
        up = functional.interpolate(deep, scale_factor=2.0, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.out(torch.cat([up, image], 1)))


def build(folder: Path) -> Built:
    torch.manual_seed(5)
    model = give_weights(Decoder(), 5)
    image = torch.randn(1, 3, 20, 20)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def swap(graph: GraphProto) -> list[str]:
        first, second = nodes(graph, "Conv")[1:3]
        first.input[1], second.input[1] = second.input[1], first.input[1]
        return [first.name, second.name]

    guilty = edit(correct, folder / "faulty.onnx", swap)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 20, 20),),
    )
