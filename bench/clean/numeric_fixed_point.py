"""A deep-equilibrium layer: forty damped steps to a fixed point, where early rounding is forgotten again."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator", about="forty contracting iterations; the residual at the end is pure rounding"
)


class Equilibrium(nn.Module):
    """Returns the state and its last step: the second output is noise around zero in every runtime."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(24, 24, bias=False), nn.Linear(10, 24)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        drive = self.outer(x)
        state = torch.zeros_like(drive)
        step = drive
        for _ in range(40):
            step = torch.tanh(0.6 * self.inner(state) + drive) - state
            state = state + step
        return state, step


def build(folder: Path) -> Built:
    model = give_weights(Equilibrium(), 86)
    return healthy(
        folder / "numeric_fixed_point.onnx", model, (normal(3, 10),), ({0: "batch"},), dynamo=False
    )
