"""Three-dimensional convolutions and pooling with count_include_pad=False: other kernels than the 2-D ones."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="3-D convolutions, average pooling over frames")


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv3d(3, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.AvgPool3d(3, 2, 1, count_include_pad=False),
        nn.Conv3d(8, 8, (1, 3, 3)), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip
    return healthy(
        folder / "conv_video.onnx",
        give_weights(model, 24),
        (normal(2, 3, 6, 12, 12),),
        ({0: "batch"},),
        dynamo=False,
    )
