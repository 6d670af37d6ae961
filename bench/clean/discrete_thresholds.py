"""Bool outputs by comparison with a threshold, and a `where` on them: a hard switch between two branches."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="tabular", about="alarm flags (bool), their count (int) and a switched value")


class Alarm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.risk, self.small, self.large = nn.Linear(10, 8), nn.Linear(10, 8), nn.Linear(10, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        alarm = self.risk(x) > 0.25
        return alarm, alarm.sum(-1), torch.where(alarm, 100 * self.large(x), self.small(x))


def build(folder: Path) -> Built:
    return healthy(
        folder / "discrete_thresholds.onnx",
        give_weights(Alarm(), 103),
        (normal(12, 10),),
        ({0: "batch"},),
        dynamo=True,
    )
