"""Outputs in a dict that holds a tuple and a list, from keyword inputs of one shape."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="dict of tensor, tuple and list; two keyword inputs of one shape")


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 8), nn.Linear(6, 8)

    def forward(self, *, home: Tensor, away: Tensor) -> dict[str, Any]:
        a, b = self.left(home), self.right(away)
        return {"score": a - b, "parts": (a, b), "history": [a.mean(1), b.amax(1)]}


def build(folder: Path) -> Built:
    inputs = {"home": normal(3, 6), "away": normal(3, 6, seed=2)}
    axes = {"home": {0: "batch"}, "away": {0: "batch"}}
    return healthy(
        folder / "outputs_nested.onnx", give_weights(Nested(), 112), inputs, axes, dynamo=True
    )
