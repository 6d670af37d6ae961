"""Bicubic growth: sixteen weighted neighbours a pixel, with weights of both signs."""

from pathlib import Path

from bench.architectures import UNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="unet", about="bicubic growth without norm")


def build(folder: Path) -> Built:
    model = give_weights(UNet("bicubic", align_corners=False, norm="none"), 54)
    return healthy(
        folder / "unet_bicubic.onnx", model, (normal(2, 3, 16, 24),), ({0: "batch"},), dynamo=False
    )
