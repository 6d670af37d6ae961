"""Columns in their own units, from 1e-6 to 1e6, standardised inside the model: the first step cancels six digits."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="tabular",
    about="standardisation of raw columns with large means, then an MLP with LogSigmoid",
)


class RawUnits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([1e6, 3e-6, 20000.0, 0.5, 1013.0]))
        self.register_buffer("deviation", torch.tensor([40.0, 1e-7, 3.0, 0.2, 6.0]))
        self.mlp = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 4), nn.LogSigmoid())

    def forward(self, columns: Tensor) -> Tensor:
        return self.mlp((columns - self.mean) / self.deviation)


def build(folder: Path) -> Built:
    model = give_weights(RawUnits(), 66)
    columns = normal(6, 5) * model.deviation + model.mean
    return healthy(
        folder / "tabular_raw_units.onnx", model, (columns,), ({0: "batch"},), dynamo=True
    )
