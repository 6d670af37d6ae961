"""Twenty-four blocks with near one-hot attention: an ulp in the scores moves the whole mixture, layer after layer."""

from pathlib import Path

import torch

from bench.architectures import TransformerStack
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="24 pre-LN blocks whose attention is nearly one-hot")


def build(folder: Path) -> Built:
    model = give_weights(TransformerStack(24), 34)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.qkv.weight.mul_(6)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_sharp_attention.onnx", model, (normal(2, 12, 32),), axes, dynamo=False
    )
