"""ConvNeXt-like: LayerNorm over channels between two permutes, exact GELU by erf."""

from pathlib import Path

from torch import nn

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="channels-first LayerNorm and GELU (erf)")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("layer", nn.GELU, depth=5), 15)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_layernorm_gelu.onnx", model, (normal(2, 3, 24, 20),), axes, dynamo=True
    )
