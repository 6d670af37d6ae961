"""Cross-attention with keyword inputs, two of them of one shape: pairing by order would swap them unseen."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="transformer", about="keyword inputs query, keys, values; keys and values share a shape"
)


class CrossAttention(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.q, self.k, self.v = (
            nn.Linear(width, width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )

    def forward(self, query: Tensor, *, keys: Tensor, values: Tensor) -> Tensor:
        scores = self.q(query) @ self.k(keys).transpose(1, 2)
        return query + scores.softmax(-1) @ self.v(values)


def build(folder: Path) -> Built:
    inputs = {
        "query": normal(2, 5, 24, seed=1),
        "keys": normal(2, 7, 24, seed=2),
        "values": normal(2, 7, 24, seed=3),
    }
    axes = {
        "query": {0: "batch", 1: "length"},
        "keys": {0: "batch", 1: "memory"},
        "values": {0: "batch", 1: "memory"},
    }
    return healthy(
        folder / "transformer_cross_keywords.onnx",
        give_weights(CrossAttention(), 38),
        inputs,
        axes,
        dynamo=True,
    )
