"""A spiking net: neurons fire when a leaky sum passes a threshold; one flipped spike changes all that follow."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="twenty steps of leaky integrate-and-fire, mean firing rate out")


class Spiking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.recur, self.leave = (
            nn.Linear(8, 64),
            nn.Linear(64, 64, bias=False),
            nn.Linear(64, 4),
        )

    def forward(self, x: Tensor) -> Tensor:
        drive = self.enter(x)
        voltage, spikes, total = (
            torch.zeros_like(drive),
            torch.zeros_like(drive),
            torch.zeros_like(drive),
        )
        for _ in range(20):
            voltage = 0.9 * voltage * (1 - spikes) + drive + self.recur(spikes)
            spikes = (voltage > 1).to(x.dtype)
            total = total + spikes
        return self.leave(total / 20)


def build(folder: Path) -> Built:
    return healthy(
        folder / "discrete_spiking.onnx",
        give_weights(Spiking(), 106),
        (normal(4, 8),),
        ({0: "batch"},),
        dynamo=False,
    )
