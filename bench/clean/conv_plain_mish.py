"""No norm at all, and Mish = x tanh(softplus(x)): three transcendental functions a pixel, each with its own kernel."""

from pathlib import Path

from torch import nn

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="conv net without norm, Mish decomposed by the exporter")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("none", nn.Mish, depth=6), 16)
    return healthy(
        folder / "conv_plain_mish.onnx",
        model,
        (normal(3, 3, 16, 16),),
        ({0: "batch"},),
        dynamo=False,
    )
