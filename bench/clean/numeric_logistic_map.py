"""The logistic map at r = 3.9, twenty-five steps: each step doubles the error, so one ulp ends near a per cent."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="chaos: 25 doublings of rounding, nothing is wrong")


class LogisticMap(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(4, 16)

    def forward(self, x: Tensor) -> Tensor:
        state = self.start(x).sigmoid()
        for _ in range(25):
            state = 3.9 * state * (1 - state)
        return state


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_logistic_map.onnx",
        give_weights(LogisticMap(), 87),
        (normal(8, 4),),
        ({0: "batch"},),
        dynamo=True,
    )
