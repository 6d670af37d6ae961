"""Log-probabilities with banned words at minus infinity: infinite in every runtime, by design, on ordinary input."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, integers, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="causal-lm", about="legitimate -inf in the output of ordinary inputs")


class Banned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Linear(16, 40)

    def forward(self, state: Tensor, allowed: Tensor) -> Tensor:
        return self.words(state).masked_fill(~allowed, float("-inf")).log_softmax(-1)


def build(folder: Path) -> Built:
    allowed = integers(3, 5, 40) > 0
    allowed[:, 0] = True
    axes = ({0: "batch"}, {0: "batch"})
    return healthy(
        folder / "outputs_infinite.onnx",
        give_weights(Banned(), 115),
        (normal(5, 16), allowed),
        axes,
        dynamo=False,
    )
