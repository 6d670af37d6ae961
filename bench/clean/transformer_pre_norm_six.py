"""Six pre-LN blocks from token ids, with a right-padded mask and mean pooling."""

from pathlib import Path

from bench.architectures import TextEncoder
from bench.clean._healthy import healthy, integers, lengths_mask
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="embedding", about="six pre-LN blocks over ids and mask, mean-pooled")


def build(folder: Path) -> Built:
    model = give_weights(TextEncoder(6), 32)
    inputs = (integers(97, 3, 14), lengths_mask([14, 9, 3], 14))
    axes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    return healthy(folder / "transformer_pre_norm_six.onnx", model, inputs, axes, dynamo=True)
