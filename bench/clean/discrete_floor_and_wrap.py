"""Floor, remainder and wrapping of an angle: sawtooth functions which jump where rounding decides."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="cell index, place within the cell, and a wrapped angle")


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Linear(6, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = self.turn(torch.tanh(x)) * 50
        return (
            torch.floor(place).to(torch.int32),
            torch.remainder(place, 1.0),
            torch.remainder(place + math.pi, 2 * math.pi) - math.pi,
        )


def build(folder: Path) -> Built:
    return healthy(
        folder / "discrete_floor_and_wrap.onnx",
        give_weights(Cells(), 102),
        (normal(8, 6),),
        ({0: "batch"},),
        dynamo=False,
    )
