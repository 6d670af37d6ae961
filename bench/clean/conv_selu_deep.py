"""Self-normalising: twenty layers of SELU without a norm, each adding its rounding to the last."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="twenty 1-D convolutions with SELU")


def build(folder: Path) -> Built:
    layers = [layer for _ in range(20) for layer in (nn.Conv1d(16, 16, 3, padding=1), nn.SELU())]
    axes = ({0: "batch", 2: "time"},)
    return healthy(
        folder / "conv_selu_deep.onnx",
        give_weights(nn.Sequential(*layers), 19),
        (normal(2, 16, 40),),
        axes,
        dynamo=True,
    )
