"""Ratios with a divisor that passes close to zero: a few elements carry nearly all the error."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="quotient of two linear heads, with heavy-tailed error")


class Quotient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = nn.Linear(12, 16), nn.Linear(12, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.above(x) / self.below(x)


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_small_divisor.onnx",
        give_weights(Quotient(), 90),
        (normal(32, 12),),
        ({0: "batch"},),
        dynamo=True,
    )
