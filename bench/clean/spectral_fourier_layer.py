"""A Fourier layer without complex numbers: transform, mix the low modes, and back by matrices, around a residual."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="operator", about="discrete Fourier transform by matmul, three spectral layers")


class FourierLayers(nn.Module):
    def __init__(self, length: int = 64, modes: int = 8, width: int = 12) -> None:
        super().__init__()
        angles = 2 * math.pi / length * torch.arange(modes)[:, None] * torch.arange(length)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        self.real = nn.Parameter(torch.zeros(3, modes, width, width))
        self.imaginary = nn.Parameter(torch.zeros(3, modes, width, width))

    def forward(self, x: Tensor) -> Tensor:
        for a, b in zip(self.real, self.imaginary, strict=True):
            real, imaginary = (
                torch.einsum("mt,btc->bmc", self.cosines, x),
                torch.einsum("mt,btc->bmc", self.sines, x),
            )
            mixed_real = torch.einsum("bmc,mcd->bmd", real, a) - torch.einsum(
                "bmc,mcd->bmd", imaginary, b
            )
            mixed_imaginary = torch.einsum("bmc,mcd->bmd", real, b) + torch.einsum(
                "bmc,mcd->bmd", imaginary, a
            )
            back = torch.einsum("mt,bmc->btc", self.cosines, mixed_real) + torch.einsum(
                "mt,bmc->btc", self.sines, mixed_imaginary
            )
            x = x + torch.tanh(back / 8)
        return x


def build(folder: Path) -> Built:
    model = give_weights(FourierLayers(), 109)
    return healthy(
        folder / "spectral_fourier_layer.onnx",
        model,
        (normal(2, 64, 12),),
        ({0: "batch"},),
        dynamo=True,
    )
