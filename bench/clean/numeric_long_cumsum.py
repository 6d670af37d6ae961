"""A cumulative sum over four thousand steps: torch carries it in double, the runtime in float32."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="operator", about="trajectory from velocities by cumsum: a healthy ratio far above one"
)


class Trajectory(nn.Module):
    def forward(self, velocity: Tensor, start: Tensor) -> Tensor:
        return start.unsqueeze(1) + 0.01 * velocity.cumsum(1)


def build(folder: Path) -> Built:
    inputs = (normal(2, 4000, 3, shift=0.5), normal(2, 3, seed=2))
    axes = ({0: "batch", 1: "length"}, {0: "batch"})
    return healthy(
        folder / "numeric_long_cumsum.onnx", Trajectory().eval(), inputs, axes, dynamo=True
    )
