"""Attention in ONNX Runtime's layouts: projected inside or outside, packed, with a past, a bias and masks of five shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias, refuse_inputs
from onnxproof.runtimes.evaluator.contrib.quantized import dequantize
from onnxproof.runtimes.evaluator.normalization import softmax
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Queries, keys and values of each head: batch, head, place, width."""

    query: Array
    key: Array
    value: Array

    def attend(self, bias: Array | None, scale: float | None) -> Array:
        """The values weighted by the softmax of scaled products, to which `bias` is added; heads merged again."""
        factor = scale or 1.0 / np.sqrt(self.query.shape[-1])
        scores = self.query @ self.key.swapaxes(-1, -2) * factor
        return merge_heads(softmax(add_bias(scores, bias), -1) @ self.value)

    def after(self, past_key: Array | None, past_value: Array | None) -> "Heads":
        """The same behind the keys and values of earlier steps."""
        if past_key is None or past_value is None:
            return self
        return Heads(
            query=self.query,
            key=np.concatenate([widen(past_key), self.key], axis=2),
            value=np.concatenate([widen(past_value), self.value], axis=2),
        )


def split_heads(x: Array, heads: int) -> Array:
    """From batch, place, width to batch, head, place, width of a head."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merge_heads(x: Array) -> Array:
    """The other way round."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """What hides keys from queries, as numbers that are added to the scores."""

    mask: Array | None
    """Lengths (batch), ends and starts (2 batch), or 0 for hidden: by key, by query and key, or with unused axes around."""
    attention_bias: Array | None = None
    unidirectional: bool = False
    filter_value: float = -10000.0

    def bias(self, heads: Heads) -> Array:
        """The sum of all of them for these queries and keys, in their dtype."""
        batch, _, queries, _ = heads.query.shape
        keys = heads.key.shape[2]
        total = np.zeros((1, 1, queries, keys), heads.query.dtype)
        if self.mask is not None:
            visible = visible_keys(self.mask, batch, queries, keys)
            total = total + np.where(visible, 0.0, self.filter_value)
        if self.unidirectional:
            causal = np.tri(queries, keys, keys - queries, dtype=bool)
            lowest = np.finfo(np.float32).min
            total = np.where(causal, total, lowest)
        return add_bias(total, self.attention_bias).astype(heads.query.dtype)


def visible_keys(mask: Array, batch: int, queries: int, keys: int) -> Array:
    """Which keys each query may read, from any of the shapes that a mask has."""
    places = np.arange(keys)
    if mask.shape == (batch,):
        visible = places < mask[:, None]
    elif mask.shape == (2 * batch,):
        ends, starts = mask[:batch, None], mask[batch:, None]
        visible = (places >= starts) & (places < ends)
    elif mask.shape == (batch, keys):
        visible = mask != 0
    elif mask.shape == (batch, queries, keys):
        return np.asarray((mask != 0)[:, None])
    elif mask.ndim == 4:
        rows = mask[:, :, keys - queries : keys, :keys]
        return np.asarray(rows != 0)
    else:
        raise NotImplementedError(f"an attention mask of the shape {list(mask.shape)}")
    return np.asarray(visible[:, None, None, :])


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionAttributes:
    """The attributes of Attention, under its names."""

    num_heads: int
    scale: float | None = None
    unidirectional: int = 0
    mask_filter_value: float = -10000.0
    qkv_hidden_sizes: Sequence[int] = ()
    do_rotary: int = 0
    past_present_share_buffer: int = 0


class Attention(Contrib):
    """Self-attention with its projection inside; a past goes before the new keys."""

    def _run(
        self,
        x: Array,
        weights: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        past: Array | None = None,
        attention_bias: Array | None = None,
        past_length: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        projected = add_bias(widen(x) @ widen(weights), bias)
        refuse_inputs("Attention", {"a past length": past_length})
        outputs = attend_projected(
            projected,
            mask,
            past,
            attention_bias,
            attribute_reader.read(AttentionAttributes, attributes),
        )
        return tuple(y.astype(x.dtype) for y in outputs[: len(self.onnx_node.output)])


def attend_projected(
    projected: Array,
    mask: Array | None,
    past: Array | None,
    attention_bias: Array | None,
    options: AttentionAttributes,
) -> tuple[Array, Array]:
    """Attention over queries, keys and values side by side, and the keys and values for the next step."""
    if options.do_rotary or options.past_present_share_buffer:
        raise NotImplementedError("Attention with rotary positions or a shared buffer")
    widths = options.qkv_hidden_sizes or [projected.shape[-1] // 3] * 3
    parts = np.split(projected, np.cumsum(widths)[:2], axis=-1)
    query, key, value = (split_heads(part, options.num_heads) for part in parts)
    heads = Heads(query=query, key=key, value=value)
    if past is not None:
        heads = heads.after(past[0], past[1])
    hidden = Hidden(
        mask=mask,
        attention_bias=attention_bias,
        unidirectional=bool(options.unidirectional),
        filter_value=options.mask_filter_value,
    )
    y = heads.attend(hidden.bias(heads), options.scale)
    if heads.key.shape != heads.value.shape:
        return y, heads.key[None]
    return y, np.stack([heads.key, heads.value])


@dataclass(frozen=True, slots=True)
class _QuantizedAttentionInputs:
    """The inputs of QAttention, in its order."""

    x: Array
    w: Array
    bias: Array
    x_scale: Array
    w_scale: Array
    mask: Array | None = None
    x_zero: Array | None = None
    w_zero: Array | None = None
    past: Array | None = None


class QAttention(Contrib):
    """Attention whose projection is a product of integers."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        operands = _QuantizedAttentionInputs(*inputs)
        values = dequantize(operands.x, operands.x_scale, operands.x_zero)
        weights = dequantize(operands.w, operands.w_scale, operands.w_zero)
        outputs = attend_projected(
            values @ weights + operands.bias,
            operands.mask,
            operands.past,
            None,
            attribute_reader.read(AttentionAttributes, attributes),
        )
        dtype = operands.x_scale.dtype
        return tuple(y.astype(dtype) for y in outputs[: len(self.onnx_node.output)])


@dataclass(frozen=True, slots=True)
class _MultiHeadInputs:
    """The inputs of MultiHeadAttention, in its order."""

    query: Array
    key: Array | None = None
    value: Array | None = None
    bias: Array | None = None
    mask: Array | None = None
    attention_bias: Array | None = None
    past_key: Array | None = None
    past_value: Array | None = None
    past_length: Array | None = None
    cache_indirection: Array | None = None


class MultiHeadAttention(Contrib):
    """Attention of what is projected already: apart, keys and values packed, or all three packed."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        operands = _MultiHeadInputs(*inputs)
        refuse_inputs(
            "MultiHeadAttention",
            {
                "a past length": operands.past_length,
                "cache indirection": operands.cache_indirection,
            },
        )
        options = attribute_reader.read(AttentionAttributes, attributes)
        count = len(self.onnx_node.output)
        if count > 3:
            raise NotImplementedError("MultiHeadAttention with its scores as an output")
        heads = unpack_heads(
            operands.query, operands.key, operands.value, operands.bias, options.num_heads
        )
        heads = heads.after(operands.past_key, operands.past_value)
        hidden = Hidden(
            mask=operands.mask,
            attention_bias=operands.attention_bias,
            unidirectional=bool(options.unidirectional),
            filter_value=options.mask_filter_value,
        )
        y = heads.attend(hidden.bias(heads), options.scale)
        outputs = (y, heads.key, heads.value)
        return tuple(array.astype(operands.query.dtype) for array in outputs[:count])


def unpack_heads(
    query: Array,
    key: Array | None,
    value: Array | None,
    bias: Array | None,
    count: int,
) -> Heads:
    """Queries, keys and values of each head, from the layouts that MultiHeadAttention knows; a bias belongs to all three."""
    if key is not None and value is not None and key.ndim == 4:
        biased = add_bias(widen(query), _query_bias(bias, query.shape[-1]))
        return Heads(query=split_heads(biased, count), key=widen(key), value=widen(value))
    parts = add_biases(_unpack(query, key, value), bias)
    query, key, value = (split_heads(part, count) for part in parts)
    return Heads(query=query, key=key, value=value)


def _unpack(query: Array, key: Array | None, value: Array | None) -> list[Array]:
    """Queries, keys and values as batch, place, width."""
    if query.ndim == 5:
        return _take_apart(query)
    if key is not None and key.ndim == 5:
        return [widen(query), *_take_apart(key)]
    if key is None or value is None:
        raise NotImplementedError("MultiHeadAttention with queries alone")
    return [widen(query), widen(key), widen(value)]


def _take_apart(packed: Array) -> list[Array]:
    """Batch, place, head, part, width: each part with its heads side by side."""
    return [widen(part).reshape(*part.shape[:2], -1) for part in np.moveaxis(packed, 3, 0)]


def add_biases(parts: Sequence[Array], bias: Array | None) -> list[Array]:
    """Each part with its piece of the bias."""
    if bias is None:
        return list(parts)
    ends = np.cumsum([part.shape[-1] for part in parts])[:2]
    return [part + piece for part, piece in zip(parts, np.split(bias, ends), strict=True)]


def _query_bias(bias: Array | None, width: int) -> Array | None:
    if bias is None:
        return None
    return bias[:width]


class DecoderMaskedMultiHeadAttention(Contrib):
    """One step of decoding: one query against the past and the new key, or against the keys of an encoder."""

    def _run(
        self,
        query: Array,
        key: Array | None = None,
        value: Array | None = None,
        mask: Array | None = None,
        attention_bias: Array | None = None,
        past_key: Array | None = None,
        past_value: Array | None = None,
        past_length: Array | None = None,
        *others: Any,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        beam_width, cache_indirection, bias = (*others, None, None, None)[:3]
        refuse_inputs("DecoderMaskedMultiHeadAttention", {"cache indirection": cache_indirection})
        refuse_inputs("DecoderMaskedMultiHeadAttention", {"a beam width": beam_width})
        options = attribute_reader.read(AttentionAttributes, attributes)
        if len(self.onnx_node.output) > 3:
            raise NotImplementedError(
                "DecoderMaskedMultiHeadAttention with its scores as an output"
            )
        if key is None:
            query, key, value = np.split(query, 3, axis=-1)
        heads = unpack_heads(query, key, value, bias, options.num_heads)
        buffers = (past_key, past_value)
        if options.past_present_share_buffer and past_key is not None and past_value is not None:
            assert past_length is not None
            used = int(np.asarray(past_length).reshape(()))
            past_key, past_value = past_key[:, :, :used], past_value[:, :, :used]
        heads = heads.after(past_key, past_value)
        hidden = Hidden(
            mask=mask, attention_bias=attention_bias, filter_value=options.mask_filter_value
        )
        y = heads.attend(hidden.bias(heads), options.scale)
        present = (_write(heads.key, buffers[0]), _write(heads.value, buffers[1]))
        outputs = (y, *present)
        return tuple(array.astype(query.dtype) for array in outputs[: len(self.onnx_node.output)])


def _write(x: Array, buffer: Array | None) -> Array:
    """Keys or values at the front of a buffer that has room for more places; what lies behind them stays."""
    if buffer is None:
        return x
    return np.concatenate([x, buffer[:, :, x.shape[2] :]], axis=2)


OPERATORS: dict[str, type[OpRun]] = {
    "Attention": Attention,
    "DecoderMaskedMultiHeadAttention": DecoderMaskedMultiHeadAttention,
    "MultiHeadAttention": MultiHeadAttention,
    "QAttention": QAttention,
}
