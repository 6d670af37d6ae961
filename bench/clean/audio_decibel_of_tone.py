"""Power in decibels of a pure tone: most bins hold nothing but rounding, and the logarithm shows it in full size."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.architectures import Spectrum
from bench.clean._healthy import healthy
from bench.corpus import Built, Meta

META = Meta(
    kind="audio", about="10 log10(power + 1e-20) of empty bins: both runtimes print their own noise"
)


class Decibels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spectrum = Spectrum()

    def forward(self, wave: Tensor) -> Tensor:
        real, imaginary = self.spectrum(wave)
        return 10 * torch.log10(real**2 + imaginary**2 + 1e-20)


def build(folder: Path) -> Built:
    tone = torch.sin(2 * math.pi * 8 / 64 * torch.arange(512))[None].repeat(2, 1) * torch.tensor(
        [[0.7], [0.01]]
    )
    return healthy(
        folder / "audio_decibel_of_tone.onnx",
        Decibels().eval(),
        (tone,),
        ({0: "batch", 1: "samples"},),
        dynamo=False,
    )
