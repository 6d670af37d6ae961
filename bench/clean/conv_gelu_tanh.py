"""The tanh form of GELU: decomposed by the exporter, fused again by the runtime."""

from pathlib import Path

from torch import nn

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="BatchNorm and GELU (tanh form)")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("batch", lambda: nn.GELU(approximate="tanh"), depth=4), 17)
    return healthy(
        folder / "conv_gelu_tanh.onnx", model, (normal(2, 3, 24, 24),), ({0: "batch"},), dynamo=True
    )
