"""A small forest: comparisons choose a leaf by bit arithmetic, the leaves are gathered and averaged."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta

META = Meta(kind="tabular", about="oblivious trees: thresholds, integer leaf numbers, gather")


class Forest(nn.Module):
    def __init__(self, trees: int = 12, depth: int = 4) -> None:
        super().__init__()
        self.register_buffer("feature", integers(8, trees * depth, seed=5))
        self.register_buffer("threshold", normal(trees, depth, seed=6))
        self.register_buffer("leaves", normal(trees, 2**depth, seed=7))
        self.register_buffer("weight", 2 ** torch.arange(depth))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        trees, depth = self.threshold.shape
        chosen = x[:, self.feature].view(-1, trees, depth)
        leaf = ((chosen > self.threshold).long() * self.weight).sum(-1)
        values = self.leaves.expand(leaf.shape[0], -1, -1).gather(2, leaf.unsqueeze(-1)).squeeze(-1)
        return values.mean(-1), leaf


def build(folder: Path) -> Built:
    return healthy(
        folder / "discrete_forest.onnx",
        Forest().eval(),
        (normal(6, 8),),
        ({0: "batch"},),
        dynamo=False,
    )
