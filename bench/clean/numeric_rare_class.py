"""The probability of one rare class, read alone: values from 1e-30 up, where only relative errors mean anything."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="softmax()[..., 0] far in the tail, and its logarithm")


class RareClass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.net(x) - 40 * (x.new_ones(5).cumsum(0) < 2).to(x.dtype)
        return scores.softmax(-1)[:, 0], scores.log_softmax(-1)[:, 0]


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_rare_class.onnx",
        give_weights(RareClass(), 126),
        (normal(6, 8),),
        ({0: "batch"},),
        dynamo=False,
    )
