"""A normalising flow: coupling layers multiply by exp, and the log-determinant nearly cancels the quadratic form."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator",
    about="eight affine couplings: log-likelihood relative to the batch mean, and the latent",
)


class Flow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 12)) for _ in range(8)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        determinant = torch.zeros_like(x[:, 0])
        for net in self.nets:
            kept, changed = x.chunk(2, -1)
            scale, shift = net(kept).chunk(2, -1)
            scale = torch.tanh(scale)
            x = torch.cat([changed * scale.exp() + 3 * shift, kept], -1)
            determinant = determinant + scale.sum(-1)
        likelihood = determinant - 0.5 * x.square().sum(-1)
        return likelihood - likelihood.mean(), x


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_flow.onnx",
        give_weights(Flow(), 84),
        (normal(16, 12, scale=5),),
        ({0: "batch"},),
        dynamo=False,
    )
