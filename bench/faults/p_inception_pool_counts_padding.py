"""The flag count_include_pad was lost on an average pool of an Inception-like branch: only the border is wrong."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="conv",
    about="AveragePool counts its padding, while the module was built with count_include_pad=False",
    cause="attribute",
    stage="export",
)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 10, 3, 2, 1), nn.ReLU())
        self.pooled = nn.Sequential(
            nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.Conv2d(10, 6, 1)
        )
        self.plain = nn.Conv2d(10, 6, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        stem = self.stem(image)
        return torch.cat([self.pooled(stem), self.plain(stem)], 1)


def build(folder: Path) -> Built:
    torch.manual_seed(3)
    model = give_weights(Branches(), 3)
    image = torch.randn(1, 3, 40, 40)
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def count(graph: GraphProto) -> list[str]:
        pool = nodes(graph, "AveragePool")[0]
        set_attributes(pool, count_include_pad=1)
        return [pool.name]

    guilty = edit(correct, folder / "faulty.onnx", count)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 40, 40),),
    )
