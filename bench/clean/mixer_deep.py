"""An MLP-Mixer of eight blocks: transposes and LayerNorm, no attention, ReLU gates."""

from pathlib import Path

from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="vit", about="token and channel mixing MLPs, eight blocks")


class MixerBlock(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.within = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


def build(folder: Path) -> Built:
    model = give_weights(nn.Sequential(*(MixerBlock(16, 24) for _ in range(8))), 129)
    return healthy(
        folder / "mixer_deep.onnx", model, (normal(2, 16, 24),), ({0: "batch"},), dynamo=False
    )
