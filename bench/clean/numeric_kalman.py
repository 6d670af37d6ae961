"""A Kalman filter over forty steps: a small matrix inverted in closed form, its determinant a difference of products."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="operator", about="predict and update with a 2x2 inverse by hand, state and covariance out"
)


class Kalman(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor([[1.0, 0.1], [0.0, 0.98]]))
        self.register_buffer("drift", torch.tensor([[1e-3, 0.0], [0.0, 1e-2]]))
        self.register_buffer("noise", torch.tensor([[0.05, 0.01], [0.01, 0.2]]))

    def forward(self, measured: Tensor) -> tuple[Tensor, Tensor]:
        state = measured[:, 0]
        cover = torch.eye(2).to(measured)
        for k in range(1, 40):
            state = state @ self.step.T
            cover = self.step @ cover @ self.step.T + self.drift
            total = cover + self.noise
            determinant = total[0, 0] * total[1, 1] - total[0, 1] * total[1, 0]
            inverse = (
                torch.stack([total[1, 1], -total[0, 1], -total[1, 0], total[0, 0]]).view(2, 2)
                / determinant
            )
            gain = cover @ inverse
            state = state + (measured[:, k] - state) @ gain.T
            cover = cover - gain @ cover
        return state, cover


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_kalman.onnx",
        Kalman().eval(),
        (normal(3, 40, 2),),
        ({0: "batch"},),
        dynamo=False,
    )
