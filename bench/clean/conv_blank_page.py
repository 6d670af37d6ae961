"""Pooling a blank page: thousands of equal numbers added one by one round the same way each time, so the error is a bias."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="conv",
    about="mean over 25,000 equal values: healthy, and yet hundreds of times the reference's noise",
)


class PageFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3)

    def forward(self, page: Tensor) -> Tensor:
        return torch.relu(self.conv(page)).mean((2, 3))


def build(folder: Path) -> Built:
    page = torch.tensor([0.98, 0.37])[:, None, None, None].expand(2, 1, 160, 162).contiguous()
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_blank_page.onnx",
        give_weights(PageFeatures(), 133),
        (page,),
        axes,
        dynamo=False,
    )
