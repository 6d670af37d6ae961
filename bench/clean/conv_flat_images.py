"""InstanceNorm on a blank page of value 200: it divides the rounding of a mean by the epsilon, and shows that noise."""

from pathlib import Path

import torch
from torch import nn

from bench.clean._healthy import healthy
from bench.corpus import Built, Meta, give_weights

META = Meta(
    kind="conv",
    about="constant 0-255 images through 1x1 convolutions and InstanceNorm: the ratio of two noises",
)


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 12, 1), nn.InstanceNorm2d(12, affine=True), nn.ReLU(),
        nn.Conv2d(12, 12, 1), nn.InstanceNorm2d(12, affine=True), nn.ReLU(), nn.Conv2d(12, 4, 3),
    )  # fmt: skip
    image = torch.tensor([200.0, 255.0])[:, None, None, None].expand(2, 3, 17, 19).contiguous()
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_flat_images.onnx", give_weights(model, 123), (image,), axes, dynamo=False
    )
