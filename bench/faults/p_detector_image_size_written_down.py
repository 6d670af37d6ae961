"""Boxes are scaled by the image size, which the traced function took as a Python number: other sizes get the example's boxes."""

from pathlib import Path

import torch
from onnx import load
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="detector",
    about="relative boxes are multiplied by the example's width and height",
    cause="baked-dimension",
    stage="export",
    native=True,
)


class Regressor(nn.Module):
    def __init__(self, as_list: bool = True) -> None:
        super().__init__()
        self.as_list = as_list
        self.conv, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 4)

    def forward(self, image: Tensor) -> Tensor:
        height, width = image.shape[-2:]
        relative = torch.sigmoid(self.head(torch.relu(self.conv(image)).mean((2, 3))))
        if self.as_list:
            return relative * torch.tensor([width, height, width, height], dtype=torch.float32)
        return relative * torch.stack(
            [image.new_ones(()) * size for size in (width, height, width, height)]
        )


def build(folder: Path) -> Built:
    torch.manual_seed(84)
    model, symbolic = give_weights(Regressor(), 84), give_weights(Regressor(as_list=False), 84)
    image = torch.randn(1, 3, 32, 48)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    correct = export(symbolic, (image,), folder / "correct.onnx", shapes)
    faulty = export(model, (image,), folder / "faulty.onnx", shapes, dynamo=False)
    guilty = [nodes(load(faulty).graph, "Mul")[-1].name]
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=faulty,
        guilty=guilty,
        trigger=(torch.randn(1, 3, 40, 40),),
    )
