"""Multiplicative feature crosses: values of many sizes in one vector, the product of layers rather than their sum."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="five cross layers x0 * (W x + b) + x")


class CrossNetwork(nn.Module):
    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        crossed = x
        for layer in self.layers:
            crossed = x * layer(crossed) + crossed
        return crossed


def build(folder: Path) -> Built:
    model = give_weights(CrossNetwork(), 67)
    return healthy(
        folder / "tabular_cross_network.onnx",
        model,
        (normal(4, 12, scale=2),),
        ({0: "batch"},),
        dynamo=True,
    )
