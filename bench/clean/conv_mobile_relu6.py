"""Inverted residuals: depthwise convolutions and ReLU6, where many activations sit exactly on 0 or 6."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="MobileNet-like blocks: depthwise, BatchNorm, ReLU6")


class InvertedResidual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, 3 * width, 1, bias=False), nn.BatchNorm2d(3 * width), nn.ReLU6(),
            nn.Conv2d(3 * width, 3 * width, 3, padding=1, groups=3 * width, bias=False), nn.BatchNorm2d(3 * width), nn.ReLU6(),
            nn.Conv2d(3 * width, width, 1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        *(InvertedResidual(8) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return healthy(
        folder / "conv_mobile_relu6.onnx",
        give_weights(model, 12),
        (normal(2, 3, 32, 32, scale=3),),
        ({0: "batch"},),
        dynamo=True,
    )
