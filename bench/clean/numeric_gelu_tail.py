"""Units that are off: GELU and SiLU far in their negative tails, where 1e-8 is all that is left of them."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="operator",
    about="activations of dead units as outputs, beside live ones of the same layer",
)


class DeadUnits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.live, self.dead = nn.Linear(8, 12), nn.Linear(8, 12)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = bounded(x)
        return (
            functional.gelu(self.live(x)),
            functional.gelu(self.dead(x) - 6),
            functional.silu(self.dead(x) - 20),
        )


def bounded(x: Tensor) -> Tensor:
    """Bound the inputs, so that no input can wake the dead units."""
    return x / (1 + x.abs())


def build(folder: Path) -> Built:
    return healthy(
        folder / "numeric_gelu_tail.onnx",
        give_weights(DeadUnits(), 127),
        (normal(6, 8),),
        ({0: "batch"},),
        dynamo=True,
    )
