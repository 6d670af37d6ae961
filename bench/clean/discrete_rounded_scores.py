"""Scores rounded to two decimals and to whole numbers: a value beside a half may land on either side."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="torch.round of a scaled output, as float and as int64")


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        score = self.net(x)
        return torch.round(score * 100) / 100, torch.round(score * 1e5).long()


def build(folder: Path) -> Built:
    return healthy(
        folder / "discrete_rounded_scores.onnx",
        give_weights(Rounded(), 101),
        (normal(40, 16),),
        ({0: "batch"},),
        dynamo=True,
    )
