"""A segmentation net that grows by bilinear interpolation; height and width are dynamic."""

from pathlib import Path

from bench.architectures import UNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="unet", about="bilinear growth, BatchNorm, any size that divides by four")


def build(folder: Path) -> Built:
    model = give_weights(UNet("bilinear", align_corners=False), 51)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "unet_bilinear.onnx", model, (normal(2, 3, 24, 32),), axes, dynamo=False
    )
