"""Angles between nearly parallel vectors by acos of a clamped cosine: acos has an infinite slope at 1."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="embedding", about="angular distance: an ulp in the cosine is 3e-4 in the angle")


class Angles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(10, 16)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = (
            functional.normalize(self.project(first), dim=-1),
            functional.normalize(self.project(second), dim=-1),
        )
        return torch.acos((a * b).sum(-1).clamp(-0.9999999, 0.9999999))


def build(folder: Path) -> Built:
    first = normal(16, 10)
    inputs = (first, first + normal(16, 10, seed=2, scale=2e-3))
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "geometry_angles.onnx", give_weights(Angles(), 111), inputs, axes, dynamo=False
    )
