"""Each pixel attends to its 3x3 neighbourhood through `unfold`, zero-padded at the border."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="vit", about="unfold, einsum scores, softmax over nine neighbours")


class LocalAttention(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.qkv = nn.Conv2d(3, 3 * width, 1)
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        batch, _, height, width = image.shape
        q, k, v = self.qkv(image).chunk(3, 1)
        channels = q.shape[1]
        k, v = (
            functional.unfold(t, 3, padding=1).view(batch, channels, 9, height, width)
            for t in (k, v)
        )
        weight = torch.einsum("bchw,bcnhw->bnhw", q, k).softmax(1)
        return self.out(torch.einsum("bnhw,bcnhw->bchw", weight, v))


def build(folder: Path) -> Built:
    model = give_weights(LocalAttention(), 108)
    return healthy(
        folder / "spatial_local_attention.onnx",
        model,
        (normal(2, 3, 10, 12),),
        ({0: "batch"},),
        dynamo=False,
    )
