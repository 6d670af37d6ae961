"""E[x^2] - E[x]^2 around a large mean: four to six digits cancel, and each runtime is wrong in its own way."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="textbook variance of values around 300, then a linear layer")


class TextbookVariance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x * x).mean(1) - x.mean(1).square())


def build(folder: Path) -> Built:
    model = give_weights(TextbookVariance(), 81)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "numeric_variance_cancellation.onnx",
        model,
        (normal(3, 200, 6, shift=300.0),),
        axes,
        dynamo=True,
    )
