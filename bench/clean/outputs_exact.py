"""Outputs that torch computes without any rounding: copies, permutations, maxima. The noise is exactly zero."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="operator", about="transpose, flip, max-pool, clamp, sign and an all-zero output")


class Exact(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        pooled = functional.max_pool2d(image, 3, 2, 1)
        return (
            image.flip(3).transpose(2, 3),
            pooled,
            torch.sign(image).amin(1),
            torch.relu(-pooled.abs()),
        )


def build(folder: Path) -> Built:
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "outputs_exact.onnx", Exact().eval(), (normal(2, 3, 9, 11),), axes, dynamo=True
    )
