"""Growth by nearest neighbour, class ids as output: a mask of integers from nearly tied logits."""

from pathlib import Path

from torch import Tensor

from bench.architectures import UNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="unet", about="nearest growth, argmax segmentation mask and its probabilities")


class Segmenter(UNet):
    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits = super().forward(image)
        return logits.argmax(1), logits.softmax(1)


def build(folder: Path) -> Built:
    model = give_weights(Segmenter("nearest", norm="instance"), 53)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(folder / "unet_nearest.onnx", model, (normal(2, 3, 24, 32),), axes, dynamo=True)
