"""A softmax at temperature 0.002 between near ties: it is 1, 0, or anything between, decided by the last bits."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator", about="hard-attention retrieval from a memory with near-duplicate keys"
)


class Memory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys, self.values = nn.Parameter(torch.zeros(30, 12)), nn.Parameter(torch.zeros(30, 5))

    def forward(self, query: Tensor) -> Tensor:
        return (query @ self.keys.T / 0.002).softmax(-1) @ self.values


def build(folder: Path) -> Built:
    model = give_weights(Memory(), 93)
    with torch.no_grad():
        model.keys[15:] = model.keys[:15] + normal(15, 12, scale=1e-4)
    return healthy(
        folder / "numeric_sharp_softmax.onnx",
        model,
        (normal(6, 12),),
        ({0: "batch"},),
        dynamo=False,
    )
