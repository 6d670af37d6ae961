"""Phase of a spectrum by atan2: where the power is nearly nothing, the angle is arbitrary and jumps by 2 pi."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.architectures import Spectrum
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="audio", about="atan2 phase of a tone with a little hiss")


class Phase(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum = Spectrum()

    def forward(self, wave: Tensor) -> tuple[Tensor, Tensor]:
        real, imaginary = (
            part[:, 1:-1] for part in self.spectrum(wave)
        )  # the outer bins are real: their angle is 0 or pi
        return torch.atan2(imaginary, real), torch.sqrt(real**2 + imaginary**2)


def build(folder: Path) -> Built:
    tone = torch.sin(2 * math.pi * 5 / 64 * torch.arange(512))[None] + normal(2, 512, scale=1e-6)
    return healthy(
        folder / "audio_phase.onnx",
        Phase().eval(),
        (tone,),
        ({0: "batch", 1: "samples"},),
        dynamo=True,
    )
