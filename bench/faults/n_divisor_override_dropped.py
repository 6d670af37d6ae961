"""`divisor_override` of avg_pool2d is dropped by both exporters: the window mean is written instead."""

from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from bench.corpus import Built, Meta, export, give_weights, nodes

META = Meta(
    kind="conv",
    about="sum pooling written as AvgPool2d(3, divisor_override=1); the exported AveragePool divides by nine",
    cause="attribute",
    stage="export",
    native=True,
)


class SumPool(nn.Module):
    def __init__(self, *, explicit: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.explicit = explicit
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        pool = nn.functional.avg_pool2d
        x = pool(x, 3, 2) * 9.0 if self.explicit else pool(x, 3, 2, divisor_override=1)
        return self.head(x.mean((2, 3)))


def build(folder: Path) -> Built:
    model = give_weights(SumPool(explicit=False), 14)
    other = give_weights(SumPool(explicit=True), 14)
    example = (torch.randn(2, 3, 15, 15, generator=torch.Generator().manual_seed(1)),)
    shapes = ({0: "batch"},)
    faulty = export(model, example, folder / "faulty.onnx", shapes)
    correct = export(other, example, folder / "correct.onnx", shapes)
    guilty = [node.name for node in nodes(onnx.load(faulty).graph, "AveragePool")]
    return Built(
        model=model,
        example_inputs=example,
        dynamic_shapes=shapes,
        faulty=faulty,
        correct=correct,
        guilty=guilty,
        trigger=(torch.randn(2, 3, 15, 15, generator=torch.Generator().manual_seed(2)),),
    )
