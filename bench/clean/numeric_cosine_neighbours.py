"""Cosine similarities of near-duplicates: every value is 1 within an ulp or two, and 1 - cos is all rounding."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="embedding", about="similarity and distance of near-duplicate vectors")


class Similarity(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 32)

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        cosine = functional.cosine_similarity(self.project(first), self.project(second), dim=-1)
        return cosine, 1 - cosine


def build(folder: Path) -> Built:
    first = normal(8, 16)
    inputs = (first, first + normal(8, 16, seed=2, scale=1e-4))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "numeric_cosine_neighbours.onnx",
        give_weights(Similarity(), 92),
        inputs,
        axes,
        dynamo=True,
    )
