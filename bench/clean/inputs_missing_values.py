"""NaN in the example itself: missing numbers are replaced by learned values and flagged, as tabular models do."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="isnan, where, indicator columns")


class Imputer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.default = nn.Parameter(torch.zeros(7))
        self.net = nn.Sequential(nn.Linear(14, 32), nn.SELU(), nn.Linear(32, 2))

    def forward(self, x: Tensor) -> Tensor:
        missing = torch.isnan(x)
        return self.net(torch.cat([torch.where(missing, self.default, x), missing.to(x.dtype)], 1))


def build(folder: Path) -> Built:
    x = normal(6, 7)
    x[0, 2] = x[3, 5] = x[4, 0] = float("nan")
    return healthy(
        folder / "inputs_missing_values.onnx",
        give_weights(Imputer(), 116),
        (x,),
        ({0: "batch"},),
        dynamo=True,
    )
