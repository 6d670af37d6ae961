"""Squared distances by |a|^2 + |b|^2 - 2ab: near neighbours cancel to nothing, and the square root magnifies it."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator",
    about="distances to a codebook whose entries lie close to the inputs; nearest entry's index",
)


class Codebook(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.zeros(20, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        squared = (
            x.square().sum(-1, keepdim=True) + self.codes.square().sum(-1) - 2 * x @ self.codes.T
        )
        return squared.clamp(min=0).sqrt(), squared.argmin(-1)


def build(folder: Path) -> Built:
    model = give_weights(Codebook(), 91)
    x = model.codes.detach()[:10] + normal(10, 8, scale=1e-3)
    return healthy(folder / "numeric_distances.onnx", model, (x,), ({0: "batch"},), dynamo=True)
