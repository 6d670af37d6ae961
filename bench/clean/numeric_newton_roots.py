"""Newton's method, fifteen steps, for roots and inverse square roots: converged digits agree, diverging starts do not."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="operator", about="cubic roots by Newton from a bad start, and the final residual")


class Newton(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        target = x.abs() + 0.5
        root = torch.ones_like(target) * 3
        for _ in range(15):
            root = root - (root**3 - target) / (3 * root**2)
        return root, root**3 - target


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_newton_roots.onnx",
        Newton().eval(),
        (normal(4, 20),),
        ({0: "batch"},),
        dynamo=False,
    )
