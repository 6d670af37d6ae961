"""A learned affine grid and grid_sample: sampling places near pixel borders, out-of-range ones padded with zeros."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="affine grid by hand, bilinear grid_sample")


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.localise = nn.Sequential(
            nn.Conv2d(1, 6, 5, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(24, 6),
        )
        self.register_buffer("identity", torch.tensor([1.0, 0, 0, 0, 1, 0]))
        line = torch.linspace(-1, 1, 16)
        y, x = torch.meshgrid(line, line, indexing="ij")
        self.register_buffer("places", torch.stack([x, y, torch.ones_like(x)], -1).view(-1, 3))

    def forward(self, image: Tensor) -> Tensor:
        affine = (self.identity + 0.2 * self.localise(image)).view(-1, 2, 3)
        grid = (self.places @ affine.transpose(1, 2)).view(-1, 16, 16, 2)
        return functional.grid_sample(image, grid, align_corners=True)


def build(folder: Path) -> Built:
    model = give_weights(SpatialTransformer(), 107)
    return healthy(
        folder / "spatial_transformer.onnx",
        model,
        (normal(2, 1, 20, 20),),
        ({0: "batch"},),
        dynamo=True,
    )
