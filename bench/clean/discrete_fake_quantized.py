"""Quantisation-aware training left in the module: activations snapped to 255 steps, where an ulp can cost a whole step."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="round-and-clamp on activations between conv layers, in float32")


class Snap(nn.Module):
    def __init__(self, step: float) -> None:
        super().__init__()
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp(torch.round(x / self.step), -128, 127) * self.step


def build(folder: Path) -> Built:
    model = nn.Sequential(
        Snap(0.03), nn.Conv2d(3, 12, 3, padding=1), nn.ReLU(), Snap(0.02), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(), Snap(0.02),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip
    return healthy(
        folder / "discrete_fake_quantized.onnx",
        give_weights(model, 105),
        (normal(2, 3, 20, 20),),
        ({0: "batch"},),
        dynamo=False,
    )
