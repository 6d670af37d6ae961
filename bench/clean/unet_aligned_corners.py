"""The same with align_corners=True, whose sampling places depend on the size: float coordinates near pixel borders."""

from pathlib import Path

from bench.architectures import UNet
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="unet", about="bilinear growth with aligned corners, GroupNorm")


def build(folder: Path) -> Built:
    model = give_weights(UNet("bilinear", align_corners=True, norm="group"), 52)
    return healthy(
        folder / "unet_aligned_corners.onnx",
        model,
        (normal(2, 3, 24, 32),),
        ({0: "batch"},),
        dynamo=True,
    )
