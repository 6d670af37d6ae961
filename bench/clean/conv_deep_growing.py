"""Thirty-two residual blocks without a norm: activations grow layer by layer, and so does their rounding."""

from pathlib import Path

import torch

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="conv", about="32 un-normalised residual blocks; the logits reach the hundred thousands"
)


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("none", depth=32, width=12), 25)
    with torch.no_grad():
        for block in model.blocks:
            block[0].weight.mul_(1.2)
    return healthy(
        folder / "conv_deep_growing.onnx",
        model,
        (normal(2, 3, 16, 16),),
        ({0: "batch"},),
        dynamo=True,
    )
