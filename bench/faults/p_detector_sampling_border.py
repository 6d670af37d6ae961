"""Sampling outside the feature map repeats its border instead of giving zeros: inside points are identical."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import Tensor, nn
from torch.nn import functional

from bench.corpus import Built, Meta, edit, export, give_weights, nodes, set_attributes

META = Meta(
    kind="detector",
    about="GridSample padding_mode zeros became border",
    cause="attribute",
    stage="export",
)


class PointHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 2)

    def forward(self, image: Tensor, points: Tensor) -> Tensor:
        sampled = functional.grid_sample(
            self.conv(image), points[:, None], padding_mode="zeros", align_corners=False
        )
        return self.head(sampled[:, :, 0].transpose(1, 2))


def build(folder: Path) -> Built:
    torch.manual_seed(86)
    model = give_weights(PointHead(), 86)
    image, points = torch.randn(2, 3, 16, 16), torch.rand(2, 5, 2) * 1.6 - 0.8
    shapes = ({0: "batch"}, {0: "batch", 1: "points"})
    correct = export(model, (image, points), folder / "correct.onnx", shapes)

    def repeat(graph: GraphProto) -> list[str]:
        sample = nodes(graph, "GridSample")[0]
        set_attributes(sample, padding_mode="border")
        return [sample.name]

    guilty = edit(correct, folder / "faulty.onnx", repeat)
    return Built(
        model=model,
        example_inputs=(image, points),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 16, 16), torch.randn(2, 7, 2) * 1.5),
    )
