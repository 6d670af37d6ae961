"""MobileNetV3-like squeeze-and-excite: Hardswish, and a Hardsigmoid gate which is exactly 0 or 1 for many channels."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="Hardswish with a Hardsigmoid channel gate")


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.gate = nn.Sequential(
            nn.Conv2d(width, 4, 1), nn.ReLU(), nn.Conv2d(4, width, 1), nn.Hardsigmoid()
        )

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardswish(self.norm(self.conv(x)))
        return x * self.gate(4 * x.mean((2, 3), keepdim=True))


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        SqueezeExcite(16),
        SqueezeExcite(16),
        nn.Flatten(),
        nn.Linear(16 * 144, 10),
    )
    return healthy(
        folder / "conv_hardswish_squeeze.onnx",
        give_weights(model, 20),
        (normal(2, 3, 24, 24),),
        ({0: "batch"},),
        dynamo=False,
    )
