"""A transposed convolution crops two pixels on one side instead of one on each: the same size, shifted by a pixel."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="unet",
    about="ConvTranspose pads (1,1,1,1) became (2,2,0,0)",
    cause="attribute",
    stage="export",
)


class Hourglass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 8, 4, 2, 1), nn.ConvTranspose2d(8, 4, 4, 2, 1)
        self.out = nn.Conv2d(5, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        return torch.sigmoid(self.out(torch.cat([self.up(torch.relu(self.down(image))), image], 1)))


def build(folder: Path) -> Built:
    torch.manual_seed(112)
    model = give_weights(Hourglass(), 112)
    image = torch.randn(1, 1, 16, 16)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def shift(graph: GraphProto) -> list[str]:
        up = nodes(graph, "ConvTranspose")[0]
        set_attributes(up, pads=[2, 2, 0, 0])
        return [up.name]

    guilty = edit(correct, folder / "faulty.onnx", shift)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 1, 16, 16),),
    )
