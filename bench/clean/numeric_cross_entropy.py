"""A loss as the only output: one number, which the reference may hit by luck to the last bit."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="scalar cross entropy of a classifier")


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 11))

    def forward(self, x: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(
            self.body(x), label, weight=torch.linspace(0.5, 1.5, 11).to(x)
        )


def build(folder: Path) -> Built:
    inputs = (normal(16, 20), integers(11, 16))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "numeric_cross_entropy.onnx", give_weights(Loss(), 82), inputs, axes, dynamo=False
    )
