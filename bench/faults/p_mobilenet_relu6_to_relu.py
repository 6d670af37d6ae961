"""ReLU6 became ReLU: converters that know only ReLU drop the upper bound, which shows when an activation exceeds six."""

from pathlib import Path

import torch
from onnx import GraphProto
from torch import nn

from bench.corpus import Built, Meta, edit, export, give_weights, nodes

META = Meta(
    kind="conv",
    about="one ReLU6 of a depthwise net exported as ReLU",
    cause="clipping",
    stage="export",
)


class Depthwise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU6())
        self.body = nn.Sequential(
            nn.Conv2d(12, 12, 3, 1, 1, groups=12),
            nn.BatchNorm2d(12),
            nn.ReLU6(),
            nn.Conv2d(12, 20, 1),
        )
        self.head = nn.Linear(20, 6)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(image)).mean((2, 3)))


def build(folder: Path) -> Built:
    torch.manual_seed(1)
    model = give_weights(Depthwise(), 1)
    image = torch.randn(2, 3, 24, 24) * 0.5
    shapes = ({0: "batch"},)
    correct = export(model, (image,), folder / "correct.onnx", shapes, dynamo=False)

    def unbounded(graph: GraphProto) -> list[str]:
        clip = nodes(graph, "Clip")[1]
        clip.op_type = "Relu"
        del clip.input[1:]
        return [clip.name]

    guilty = edit(correct, folder / "faulty.onnx", unbounded)
    return Built(
        model=model,
        example_inputs=(image,),
        dynamic_shapes=shapes,
        correct=correct,
        faulty=folder / "faulty.onnx",
        guilty=guilty,
        trigger=(torch.randn(2, 3, 24, 24) * 12,),
    )
