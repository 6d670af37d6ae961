"""Nearest upsampling rounds where PyTorch floors: equal for even sizes (factor two), wrong for odd ones."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="unet",
    about="Resize nearest_mode round_prefer_floor instead of floor; invisible while every size is even",
    cause="attribute",
    stage="export",
)


class TwoLevel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.deep = nn.Conv2d(8, 12, 3, padding=1)
        self.out = nn.Conv2d(20, 2, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skip = functional.relu(self.down(image))
        deep = functional.relu(self.deep(functional.max_pool2d(skip, 2)))
        return self.out(
            torch.cat([functional.interpolate(deep, size=skip.shape[-2:], mode="nearest"), skip], 1)
        )


def build(folder: Path) -> Built:
    torch.manual_seed(4)
    model = give_weights(TwoLevel(), 4)
    image = torch.randn(1, 3, 16, 16)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def round_up(graph: GraphProto) -> list[str]:
        resize = nodes(graph, "Resize")[0]
        set_attributes(resize, nearest_mode="round_prefer_floor")
        return [resize.name]

    guilty = edit(correct, folder / "faulty.onnx", round_up)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(1, 3, 15, 21),),
    )
