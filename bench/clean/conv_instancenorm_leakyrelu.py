"""Style-transfer body: InstanceNorm divides by each image's own deviation, which amplifies rounding on flat images."""

from pathlib import Path

from torch import nn

from bench.architectures import ConvNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="InstanceNorm and LeakyReLU on low-contrast images")


def build(folder: Path) -> Built:
    model = give_weights(ConvNet("instance", lambda: nn.LeakyReLU(0.2)), 14)
    image = normal(2, 3, 24, 24, scale=0.05, shift=0.5)
    return healthy(
        folder / "conv_instancenorm_leakyrelu.onnx", model, (image,), ({0: "batch"},), dynamo=False
    )
