"""Causal attention through `scaled_dot_product_attention`: flash arithmetic in torch, plain softmax in the graph."""

from pathlib import Path

from torch import Tensor, nn

from bench.architectures import SdpaAttention, TransformerBlock
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="four causal SDPA blocks over any length")


class CausalStack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            TransformerBlock(32, SdpaAttention(32, 4, causal=True)) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def build(folder: Path) -> Built:
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_sdpa_causal.onnx",
        give_weights(CausalStack(), 36),
        (normal(2, 10, 32),),
        axes,
        dynamo=True,
    )
