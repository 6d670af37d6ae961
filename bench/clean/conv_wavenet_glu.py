"""Dilated causal convolutions with gated linear units and left padding, as in waveform and forecasting models."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="audio", about="six dilated causal GLU layers over any number of samples")


class CausalGlu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 12, 1)
        self.layers = nn.ModuleList(nn.Conv1d(12, 24, 2, dilation=2**k) for k in range(6))

    def forward(self, wave: Tensor) -> Tensor:
        x = self.first(wave[:, None])
        for k, layer in enumerate(self.layers):
            x = x + functional.glu(layer(functional.pad(x, (2**k, 0))), dim=1)
        return x


def build(folder: Path) -> Built:
    model = give_weights(CausalGlu(), 22)
    return healthy(
        folder / "conv_wavenet_glu.onnx",
        model,
        (normal(2, 100),),
        ({0: "batch", 1: "samples"},),
        dynamo=False,
    )
