"""PixelShuffle exported as DepthToSpace in DCR order, ONNX's default, instead of PyTorch's CRD."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="conv",
    about="DepthToSpace mode CRD became DCR in a super-resolution head",
    cause="attribute",
    stage="export",
)


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 12, 3, padding=1)
        )
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.shuffle(self.body(image)).clamp(-4, 4)


def build(folder: Path) -> Built:
    torch.manual_seed(7)
    model = give_weights(SuperResolution(), 7)
    image = torch.rand(1, 3, 12, 12)
    shapes = ({0: "batch", 2: "height", 3: "width"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes)

    def reorder(graph: GraphProto) -> list[str]:
        shuffle = nodes(graph, "DepthToSpace")[0]
        set_attributes(shuffle, mode="DCR")
        return [shuffle.name]

    guilty = edit(correct, folder / "faulty.onnx", reorder)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.rand(2, 3, 9, 14),),
    )
