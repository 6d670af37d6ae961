"""Cepstral coefficients, normalised over time: a log, a cosine matrix, a difference from the mean, a division."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.architectures import LogMel
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(kind="audio", about="MFCC with mean and variance normalisation over frames")


class Cepstrum(nn.Module):
    def __init__(self, bands: int = 12, kept: int = 8) -> None:
        super().__init__()
        self.mel = LogMel(bands)
        order, band = torch.arange(kept)[:, None], torch.arange(bands)
        self.register_buffer("cosines", torch.cos(math.pi / bands * (band + 0.5) * order))

    def forward(self, wave: Tensor) -> Tensor:
        x = self.cosines @ self.mel(wave)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.pow(2).mean(-1, keepdim=True).sqrt() + 1e-5)


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "samples"},)
    return healthy(
        folder / "audio_cepstrum.onnx",
        Cepstrum().eval(),
        (normal(2, 600, scale=0.1),),
        axes,
        dynamo=False,
    )
