"""Two post-LN blocks with ReLU, any batch and length: the original transformer."""

from pathlib import Path

from torch import nn

from bench.architectures import TransformerStack
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="two post-LN blocks")


def build(folder: Path) -> Built:
    model = give_weights(TransformerStack(2, pre_norm=False, activation=nn.ReLU), 31)
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_post_norm_shallow.onnx",
        model,
        (normal(2, 9, 32),),
        axes,
        dynamo=False,
    )
