"""Global average pooling over a large image: thirty-six thousand positive values a channel, added in another order."""

from pathlib import Path

import torch
from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="conv", about="ReLU features of a 192x192 image, pooled by mean: long positive sums"
)


class PooledFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.head = nn.Linear(6, 4)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pooled = torch.relu(self.conv(image)).mean((2, 3))
        return self.head(pooled), pooled


def build(folder: Path) -> Built:
    model = give_weights(PooledFeatures(), 124)
    return healthy(
        folder / "conv_large_pool.onnx",
        model,
        (normal(1, 3, 192, 192),),
        ({0: "batch"},),
        dynamo=True,
    )
