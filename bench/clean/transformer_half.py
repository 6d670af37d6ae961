"""A half-precision encoder block: softmax and LayerNorm in float16 lose three digits in torch itself."""

from pathlib import Path

from bench.architectures import TransformerStack
from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="transformer", about="model.half(), four pre-LN blocks")


def build(folder: Path) -> Built:
    model = give_weights(TransformerStack(4), 40).half()
    axes = ({0: "batch", 1: "length"},)
    return healthy(
        folder / "transformer_half.onnx", model, (normal(2, 8, 32).half(),), axes, dynamo=False
    )
