"""Attention over sequences that lie one behind the other without padding."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.contrib.attention import (
    AttentionAttributes,
    Heads,
    add_biases,
    split_heads,
)
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class PackedAttention(Contrib):
    """Attention with its projection inside."""

    def _run(
        self,
        x: Array,
        weights: Array,
        bias: Array,
        token_offset: Array,
        lengths: Array,
        attention_bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        options = attribute_reader.read(AttentionAttributes, attributes)
        projected = add_bias(widen(x) @ widen(weights), bias)
        widths = options.qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
        parts = np.split(projected, np.cumsum(widths)[:2], axis=-1)
        return (_attend_packed(parts, lengths, attention_bias, options).astype(x.dtype),)


class PackedMultiHeadAttention(Contrib):
    """The same of what is projected already."""

    def _run(
        self,
        query: Array,
        key: Array | None,
        value: Array | None,
        bias: Array | None,
        token_offset: Array,
        lengths: Array,
        attention_bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        options = attribute_reader.read(AttentionAttributes, attributes)
        if key is None or value is None:
            parts = [widen(part).reshape(len(query), -1) for part in np.moveaxis(query, 2, 0)]
        else:
            parts = [widen(query), widen(key), widen(value)]
        parts = add_biases(parts, bias)
        return (_attend_packed(parts, lengths, attention_bias, options).astype(query.dtype),)


def _attend_packed(
    parts: Sequence[Array],
    cumulative: Array,
    attention_bias: Array | None,
    options: AttentionAttributes,
) -> Array:
    """Sequence by sequence; the bias is that of the padded batch."""
    answers = []
    for place, (start, end) in enumerate(itertools.pairwise(cumulative)):
        query, key, value = (
            split_heads(part[None, start:end], options.num_heads) for part in parts
        )
        heads = Heads(query=query, key=key, value=value)
        length = int(end - start)
        bias = None
        if attention_bias is not None:
            row = attention_bias[place % len(attention_bias)]
            bias = row[None, :, :length, :length]
        answers.append(heads.attend(bias, options.scale)[0])
    return np.concatenate(answers)


OPERATORS: dict[str, type[OpRun]] = {
    "PackedAttention": PackedAttention,
    "PackedMultiHeadAttention": PackedMultiHeadAttention,
}
