"""Thirty Sinkhorn rounds in the log domain: logsumexp of logsumexp, at a low temperature."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator", about="soft assignment by thirty rounds of row and column normalisation"
)


class Sinkhorn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        score = self.left(first) @ self.right(second).transpose(1, 2) / 0.05
        for _ in range(30):
            score = score - score.logsumexp(1, keepdim=True)
            score = score - score.logsumexp(2, keepdim=True)
        return score.exp()


def build(folder: Path) -> Built:
    inputs = (normal(2, 6, 8), normal(2, 6, 8, seed=2))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "numeric_sinkhorn.onnx", give_weights(Sinkhorn(), 85), inputs, axes, dynamo=False
    )
