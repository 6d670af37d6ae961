"""Windows rolled by half their size, as Swin has them: reshape, permute and roll around attention."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.architectures import SelfAttention, TransformerBlock
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="vit", about="window attention with a cyclic shift")


class ShiftedWindows(nn.Module):
    def __init__(self, width: int = 24, window: int = 4) -> None:
        super().__init__()
        self.window = window
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.ModuleList(
            TransformerBlock(width, SelfAttention(width, 3)) for _ in range(4)
        )

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).permute(0, 2, 3, 1)
        batch, height, width, channels = x.shape
        size = self.window
        for k, block in enumerate(self.blocks):
            shift = (k % 2) * size // 2
            x = torch.roll(x, (-shift, -shift), (1, 2))
            windows = x.view(batch, height // size, size, width // size, size, channels).permute(
                0, 1, 3, 2, 4, 5
            )
            mixed = block(windows.reshape(-1, size * size, channels))
            mixed = mixed.view(batch, height // size, width // size, size, size, channels).permute(
                0, 1, 3, 2, 4, 5
            )
            x = torch.roll(mixed.reshape(batch, height, width, channels), (shift, shift), (1, 2))
        return x.mean((1, 2))


def build(folder: Path) -> Built:
    model = give_weights(ShiftedWindows(), 46)
    return healthy(
        folder / "vit_shifted_windows.onnx",
        model,
        (normal(2, 3, 32, 32),),
        ({0: "batch"},),
        dynamo=True,
    )
