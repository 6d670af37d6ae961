"""exp of exp: the relative error of the outer exponential is the absolute error of the inner one, over many decades."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator",
    about="hazard model exp(exp(.)): outputs from 1 to 1e20 in one tensor, the largest decides any rms",
)


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(torch.exp(torch.clamp(2 * self.net(x), max=3.8)))


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_exp_tower.onnx",
        give_weights(Tower(), 89),
        (normal(6, 5),),
        ({0: "batch"},),
        dynamo=True,
    )
