"""The mean of nothing: torch says NaN, ONNX Runtime's ReduceMean says 0."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="detector",
    about="mean feature of the detected boxes; without a box torch is NaN and ONNX Runtime is 0",
    cause="kernel",
    stage="runtime",
    domain="empty",
    native=True,
)


class MeanFeature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, boxes: Tensor) -> Tensor:
        return self.linear(boxes).mean(0)


def build(folder: Path) -> Built:
    model = give_weights(MeanFeature(), 35)
    example = (torch.randn(5, 6, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "boxes"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = None
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "ReduceMean")]
    trigger = (torch.zeros(0, 6),)
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=trigger,
    )
