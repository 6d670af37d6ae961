"""A generator: transposed convolutions with stride and output padding, BatchNorm, Softsign, tanh at the end."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="transposed convolutions, Softsign, tanh")


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Linear(16, 16 * 9), nn.Unflatten(1, (16, 3, 3)), nn.Softsign(),
        nn.ConvTranspose2d(16, 12, 4, 2, 1), nn.BatchNorm2d(12), nn.Softsign(),
        nn.ConvTranspose2d(12, 3, 3, 2, 1, output_padding=1), nn.Tanh(),
    )  # fmt: skip
    return healthy(
        folder / "conv_softsign_generator.onnx",
        give_weights(model, 23),
        (normal(3, 16),),
        ({0: "batch"},),
        dynamo=True,
    )
