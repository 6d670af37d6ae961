"""Quantile heads kept in order by a cumulative sum of softplus steps, then sorted: neighbours may be nearly equal."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="tabular", about="quantiles by cumulative softplus, a sorted ensemble and its median"
)


class Quantiles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 27))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = self.body(x).view(-1, 3, 9)
        members = steps[..., :1] + functional.softplus(steps[..., 1:] - 4).cumsum(-1)
        ordered = torch.sort(members.flatten(1), dim=-1).values
        return ordered, ordered[:, 12]


def build(folder: Path) -> Built:
    model = give_weights(Quantiles(), 69)
    return healthy(
        folder / "tabular_quantiles.onnx", model, (normal(5, 10),), ({0: "batch"},), dynamo=True
    )
