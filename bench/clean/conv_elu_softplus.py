"""ELU's exp(x) - 1 cancels for small x, and softplus ends in a logarithm: rounding far above an ulp, in both runtimes."""

from pathlib import Path

from torch import nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="conv", about="ELU body and a softplus head that must stay positive")


def build(folder: Path) -> Built:
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ELU(),
        nn.Conv2d(12, 12, 3, padding=1),
        nn.ELU(0.5),
        nn.Conv2d(12, 1, 1),
        nn.Softplus(),
    )
    axes = ({0: "batch", 2: "height", 3: "width"},)
    return healthy(
        folder / "conv_elu_softplus.onnx",
        give_weights(model, 18),
        (normal(2, 1, 20, 20),),
        axes,
        dynamo=False,
    )
