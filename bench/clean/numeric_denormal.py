"""Results below 1e-38: denormal numbers with few digits left, and zero one step further."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="a product of likelihoods that underflows into denormals")


class Underflow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(6, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).sigmoid() * 1e-20 * 1e-19


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_denormal.onnx",
        give_weights(Underflow(), 128),
        (normal(6, 6),),
        ({0: "batch"},),
        dynamo=False,
    )
