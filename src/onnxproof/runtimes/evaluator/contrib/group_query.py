"""GroupQueryAttention: several heads of queries share the keys and values of one, each row of a batch with a length of its own."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.contrib.attention import merge_heads, split_heads
from onnxproof.runtimes.evaluator.contrib.normalization import divide_by_rms
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, refuse_inputs
from onnxproof.runtimes.evaluator.contrib.rotary import rotate
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attributes:
    """The attributes of GroupQueryAttention, under its names."""

    num_heads: int
    kv_num_heads: int
    scale: float | None = None
    softcap: float = 0.0
    do_rotary: int = 0
    rotary_interleaved: int = 0
    local_window_size: int = -1
    smooth_softmax: int = 0
    causal: int = 1
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    sliding_window_cache: int = 0
    k_quant_type: str = "NONE"
    v_quant_type: str = "NONE"


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The inputs of GroupQueryAttention, in its order."""

    query: Array
    key: Array | None
    value: Array | None
    past_key: Array | None
    past_value: Array | None
    last_places: Array
    """The place of each row's last key."""
    total_length: Array
    cos_cache: Array | None = None
    sin_cache: Array | None = None
    position_ids: Array | None = None
    attention_bias: Array | None = None
    head_sink: Array | None = None
    key_scale: Array | None = None
    value_scale: Array | None = None
    query_norm: Array | None = None
    key_norm: Array | None = None


class GroupQueryAttention(Contrib):
    """Attention row by row.

    1. Packed queries, keys and values are taken apart, normalized and turned by their positions.
    2. New keys and values go behind the row's own past into a buffer that has room for the longest row.
    3. Each query reads the keys up to its own place, at most a window of them; scores are scaled, capped and biased.
    4. A smooth softmax has one more term in its denominator: exp(0), or that of a sink for each head.
    """

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Array, ...]:
        operands = _Inputs(*inputs)
        options = attribute_reader.read(_Attributes, attributes)
        _refuse(operands, options)
        query, key, value = _heads(operands, options)  # 1
        length = query.shape[2]
        totals = operands.last_places.reshape(-1).astype(int) + 1
        longest = int(np.asarray(operands.total_length).reshape(()))
        first = length == longest
        starts = np.zeros_like(totals) if first else totals - length
        if options.do_rotary:
            query, key = _turn(query, key, starts, operands, options)
        keys = _append(operands.past_key, key, starts, longest)  # 2
        values = _append(operands.past_value, value, starts, longest)
        rows = []
        for row, start in enumerate(starts):
            reachable = _reachable(length, int(start), max(int(totals[row]), length), options)
            weights = _weights(
                query[row], keys[row], reachable, _bias(operands, row), operands, options
            )
            rows.append(weights @ _share(values[row][:, : reachable.shape[1]], options))
        outputs = (merge_heads(np.stack(rows)), keys, values)
        dtype = operands.query.dtype
        return tuple(array.astype(dtype) for array in outputs[: len(self.onnx_node.output)])


def _refuse(operands: _Inputs, options: _Attributes) -> None:
    refuse_inputs(
        "GroupQueryAttention",
        {"key scales": operands.key_scale, "value scales": operands.value_scale},
    )
    if options.sliding_window_cache or options.qk_output:
        raise NotImplementedError("GroupQueryAttention with a window cache or scores as an output")
    if {options.k_quant_type, options.v_quant_type} != {"NONE"}:
        raise NotImplementedError("GroupQueryAttention with a quantized cache")


def _heads(operands: _Inputs, options: _Attributes) -> tuple[Array, Array, Array]:
    """Queries, keys and values by head, normalized where the node has weights for it."""
    if operands.key is None or operands.value is None:
        count = options.num_heads + 2 * options.kv_num_heads
        packed = split_heads(widen(operands.query), count)
        ends = [options.num_heads, options.num_heads + options.kv_num_heads]
        query, key, value = np.split(packed, ends, axis=1)
    else:
        query = split_heads(widen(operands.query), options.num_heads)
        key = split_heads(widen(operands.key), options.kv_num_heads)
        value = split_heads(widen(operands.value), options.kv_num_heads)
    if operands.query_norm is not None and operands.key_norm is not None:
        query = divide_by_rms(query, (3,), options.qk_norm_epsilon)[0] * operands.query_norm
        key = divide_by_rms(key, (3,), options.qk_norm_epsilon)[0] * operands.key_norm
    return query, key, value


def _turn(
    query: Array,
    key: Array,
    starts: Array,
    operands: _Inputs,
    options: _Attributes,
) -> tuple[Array, Array]:
    assert operands.cos_cache is not None and operands.sin_cache is not None
    positions = starts[:, None] + np.arange(query.shape[2])
    if operands.position_ids is not None:
        positions = operands.position_ids
    positions = np.clip(positions, 0, len(operands.cos_cache) - 1)
    cos = operands.cos_cache[positions][:, None]
    sin = operands.sin_cache[positions][:, None]
    interleaved = bool(options.rotary_interleaved)
    turned_query = rotate(query, cos, sin, interleaved=interleaved)
    return turned_query, rotate(key, cos, sin, interleaved=interleaved)


def _append(past: Array | None, new: Array, starts: Array, longest: int) -> Array:
    """The buffer with each row's new keys behind its own past, and zeros behind them."""
    batch, heads, length, width = new.shape
    room = max(longest, 0 if past is None else past.shape[2])
    buffer = np.zeros((batch, heads, room, width), new.dtype)
    for row, start in enumerate(starts):
        if past is not None:
            buffer[row, :, :start] = past[row, :, :start]
        buffer[row, :, start : start + length] = new[row]
    return buffer


def _reachable(length: int, start: int, keys: int, options: _Attributes) -> Array:
    """Which keys each query of a row may read."""
    own = start + np.arange(length)[:, None]
    places = np.arange(keys)
    if not options.causal:
        return np.ones((length, keys), bool)
    reachable = places <= own
    if options.local_window_size > 0:
        reachable &= places > own - options.local_window_size
    return np.asarray(reachable)


def _share(x: Array, options: _Attributes) -> Array:
    """The keys or values of a head for every head of queries that shares them."""
    return np.repeat(x, options.num_heads // options.kv_num_heads, axis=0)


def _bias(operands: _Inputs, row: int) -> Array | None:
    if operands.attention_bias is None:
        return None
    return np.asarray(operands.attention_bias[row % len(operands.attention_bias)])


def _weights(
    query: Array,
    keys: Array,
    reachable: Array,
    bias: Array | None,
    operands: _Inputs,
    options: _Attributes,
) -> Array:
    """How much each key counts for each query of one row of the batch."""
    count = reachable.shape[1]
    scale = options.scale or 1.0 / np.sqrt(query.shape[-1])
    scores = query @ _share(keys[:, :count], options).swapaxes(-1, -2) * scale  # 3
    if options.softcap:
        scores = options.softcap * np.tanh(scores / options.softcap)
    if bias is not None:
        scores = scores + bias[:, :, :count]
    scores = np.where(reachable, scores, -np.inf)
    sink = np.full((options.num_heads, 1, 1), -np.inf)  # 4
    if operands.head_sink is not None:
        sink = widen(operands.head_sink).reshape(-1, 1, 1)
    elif options.smooth_softmax > 0:
        sink = np.zeros((options.num_heads, 1, 1))
    largest = np.maximum(scores.max(axis=-1, keepdims=True), sink)
    powers = np.exp(scores - largest)
    return np.asarray(powers / (powers.sum(axis=-1, keepdims=True) + np.exp(sink - largest)))


OPERATORS: dict[str, type[OpRun]] = {"GroupQueryAttention": GroupQueryAttention}
