"""Vector quantisation: the nearest code replaces the feature, so a near tie changes a float output by a whole code."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="conv encoder, argmin over a codebook, conv decoder")


class VectorQuantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 12, 4, 2, 1), nn.ReLU(), nn.Conv2d(12, 6, 4, 2, 1))
        self.codes = nn.Embedding(48, 6)
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(6, 12, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(12, 3, 4, 2, 1)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        x = self.encode(image).permute(0, 2, 3, 1)
        distance = (x.unsqueeze(-2) - self.codes.weight).square().sum(-1)
        index = torch.argmin(distance, -1)
        return self.decode(self.codes(index).permute(0, 3, 1, 2)), index


def build(folder: Path) -> Built:
    model = give_weights(VectorQuantized(), 104)
    return healthy(
        folder / "discrete_codebook.onnx",
        model,
        (normal(2, 3, 24, 24),),
        ({0: "batch"},),
        dynamo=True,
    )
