"""A Gaussian log-likelihood, summed over a batch to one number: large terms of both signs."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="scalar negative log-likelihood with a predicted log-variance")


class Likelihood(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        mean, log_variance = self.body(x).unbind(-1)
        return 0.5 * torch.sum(log_variance + (y - mean).square() / log_variance.exp())


def build(folder: Path) -> Built:
    inputs = (normal(200, 6), normal(200, seed=2))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "numeric_gaussian_likelihood.onnx",
        give_weights(Likelihood(), 83),
        inputs,
        axes,
        dynamo=True,
    )
