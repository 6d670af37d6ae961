"""Two heads of very different size in one output tensor and beside it: a volume near 1e8 and a rate near 1e-8."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="tabular",
    about="outputs near 1e8 and near 1e-8; in the joined tensor only the large one is visible to an rms",
)


class TwoScales(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.SiLU())
        self.volume, self.rate = nn.Linear(32, 3), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.body(x)
        volume, rate = self.volume(hidden) * 1e8, self.rate(hidden).exp() * 1e-8
        return volume, rate, torch.cat([volume, rate], 1)


def build(folder: Path) -> Built:
    return healthy(
        folder / "forecast_two_scales.onnx",
        give_weights(TwoScales(), 74),
        (normal(4, 8),),
        ({0: "batch"},),
        dynamo=False,
    )
