"""Twelve post-LN blocks, mean-pooled and scaled to length one, so that only directions are compared."""

from pathlib import Path

from torch import Tensor
from torch.nn import functional

from bench.architectures import TextEncoder
from bench.clean._healthy import healthy, integers, lengths_mask
from bench.corpus import Built, Meta, give_weights

META = Meta(kind="embedding", about="twelve post-LN blocks, unit-length sentence vectors")


class SentenceEncoder(TextEncoder):
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return functional.normalize(super().forward(ids, mask), dim=-1)


def build(folder: Path) -> Built:
    model = give_weights(SentenceEncoder(12, pre_norm=False), 33)
    inputs = (integers(97, 2, 12), lengths_mask([12, 5], 12))
    axes = ({0: "batch", 1: "length"}, {0: "batch", 1: "length"})
    return healthy(
        folder / "transformer_sentence_embedding.onnx", model, inputs, axes, dynamo=False
    )
