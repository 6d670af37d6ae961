"""Super-resolution: PReLU, pixel shuffle, and a bilinear skip, so the output is a small detail on a large base."""

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="PReLU, pixel shuffle, bilinear skip, clamp to the pixel range")


class SuperResolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2),
            nn.PReLU(16),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.PReLU(),
        )
        self.grow = nn.Sequential(nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image: Tensor) -> Tensor:
        base = functional.interpolate(image, scale_factor=2.0, mode="bilinear", align_corners=False)
        return (base + 0.1 * self.grow(self.body(image))).clamp(0, 1)


def build(folder: Path) -> Built:
    image = normal(2, 1, 16, 20, scale=0.2, shift=0.5)
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_superresolution_prelu.onnx",
        give_weights(SuperResolution(), 21),
        (image,),
        axes,
        dynamo=True,
    )
