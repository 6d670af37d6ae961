"""A neural ODE by twenty Runge-Kutta steps: eighty evaluations of one net, weighted sums of nearly equal slopes."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="rnn", about="RK4 integration, end state and the change of a conserved-like norm")


class NeuralOde(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 6))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        start, step = x, 0.05
        for _ in range(20):
            k1 = self.slope(x)
            k2 = self.slope(x + step / 2 * k1)
            k3 = self.slope(x + step / 2 * k2)
            k4 = self.slope(x + step * k3)
            x = x + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return x, torch.linalg.vector_norm(x, dim=1) - torch.linalg.vector_norm(start, dim=1)


def build(folder: Path) -> Built:
    return healthy(
        folder / "physics_neural_ode.onnx",
        give_weights(NeuralOde(), 110),
        (normal(4, 6),),
        ({0: "batch"},),
        dynamo=False,
    )
