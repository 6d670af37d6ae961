"""Everything of the order 1e-8, as in physics with SI units: any absolute tolerance passes it blindly."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="inputs and outputs near 1e-8")


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x * 1e8) * 3e-8


def build(folder: Path) -> Built:
    model = give_weights(Tiny(), 94)
    return healthy(
        folder / "numeric_tiny_scale.onnx",
        model,
        (normal(4, 8, scale=1e-8),),
        ({0: "batch"},),
        dynamo=True,
    )
