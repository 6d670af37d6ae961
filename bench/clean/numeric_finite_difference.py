"""A derivative by finite differences: 1e-3 in the denominator turns an ulp into 1e-4, by the model's own design."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="(f(x + h) - f(x - h)) / 2h of a small network")


class Slope(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 3)
        )

    def forward(self, x: Tensor) -> Tensor:
        return (self.net(x + 1e-3) - self.net(x - 1e-3)) / 2e-3


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_finite_difference.onnx",
        give_weights(Slope(), 88),
        (normal(4, 5),),
        ({0: "batch"},),
        dynamo=False,
    )
