"""A diffusion-like body: GroupNorm is exported as a reshape and an InstanceNorm, so sums are taken in another order."""

from pathlib import Path

from torch import nn

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="conv net with GroupNorm and SiLU, any image size")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("group", nn.SiLU), 13)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_groupnorm_silu.onnx", model, (normal(2, 3, 20, 28),), axes, dynamo=True
    )
