"""Balances near 1e8, and their exact difference from a rounded copy: an ulp is already eight units."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator", about="outputs near 1e8, and a remainder of them which is mostly rounding"
)


class Huge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        total = self.net(x) * 1e8
        return total, total - self.net(x * 0.999) * 1e8


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_huge_scale.onnx",
        give_weights(Huge(), 95),
        (normal(4, 8),),
        ({0: "batch"},),
        dynamo=False,
    )
