"""Twenty-five rounds of power iteration with close leading eigenvalues: the direction is decided by few digits."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="operator", about="leading direction of a Gram matrix and its Rayleigh quotient")


class PowerIteration(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gram = x.transpose(1, 2) @ x
        vector = torch.ones_like(gram[:, :, :1])
        for _ in range(25):
            vector = gram @ vector
            vector = vector / vector.norm(dim=1, keepdim=True).clamp(min=1e-6)
        return vector, vector.transpose(1, 2) @ gram @ vector


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "rows"},)
    return healthy(
        folder / "numeric_power_iteration.onnx",
        PowerIteration().eval(),
        (normal(3, 20, 8),),
        axes,
        dynamo=True,
    )
