"""Attention with masks, a past, biases and positions."""

import itertools
from typing import Any

import numpy as np

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


def _mask(draw: Draw, batch: int, queries: int, keys: int) -> Array | None:
    """Lengths, ends and starts, or zeros for hidden keys; every query sees a key."""
    kind = draw.one_of("none", "lengths", "ends", "keys", "queries")
    if kind == "none":
        return None
    ends = draw.integers(1, keys + 1, batch)
    if kind == "lengths":
        return ends.astype(np.int32)
    if kind == "ends":
        starts = np.minimum(draw.integers(0, keys, batch), ends - 1)
        return np.concatenate([ends, starts]).astype(np.int32)
    shape = (batch, keys) if kind == "keys" else (batch, queries, keys)
    visible = draw.integers(0, 2, *shape)
    visible[..., 0] = 1
    return visible.astype(np.int32)


@configuration("Attention")
def attention(draw: Draw) -> Configuration:
    """Every mask, a past, one direction, a bias of the scores, values of another width."""
    batch, length, heads, size = draw.size(1, 3), draw.size(1, 5), draw.size(1, 3), draw.size(1, 6)
    hidden = heads * size
    past_length = draw.one_of(0, 0, 3)
    keys = length + past_length
    attributes: dict[str, Any] = {"num_heads": heads, "unidirectional": int(draw.coin())}
    value_width = hidden
    if draw.coin() and not past_length:
        value_width = heads * draw.size(1, 6)
        attributes["qkv_hidden_sizes"] = [hidden, hidden, value_width]
    if draw.coin():
        attributes["scale"] = float(draw.scales(size=0.5))
    mask = _mask(draw, batch, length, keys)
    if attributes["unidirectional"] and mask is not None and mask.ndim == 1:
        mask = None  # a query whose keys are all hidden
    past = draw.floats(2, batch, heads, past_length, size) if past_length else None
    bias = draw.maybe(draw.floats(draw.one_of(1, batch), heads, length, keys))
    if past_length:
        bias = None  # the kernel takes one of the two
    width = 2 * hidden + value_width
    inputs = [draw.floats(batch, length, 7), draw.floats(7, width), draw.floats(width), mask]
    outputs = (True, True) if past_length else (True,)
    return Configuration(inputs=[*inputs, past, bias], attributes=attributes, outputs=outputs)


@configuration("QAttention")
def quantized_attention(draw: Draw) -> Configuration:
    """Lengths or a mask of the keys, one direction."""
    batch, length, heads, size = draw.size(1, 3), draw.size(1, 5), draw.size(1, 3), draw.size(1, 6)
    hidden = heads * size
    attributes = {"num_heads": heads, "unidirectional": int(draw.coin())}
    mask = None
    if not attributes["unidirectional"]:
        mask = _mask(draw, batch, length, length)
    return Configuration(
        inputs=[
            draw.bytes(batch, length, 8),
            draw.signed(8, 3 * hidden),
            draw.floats(3 * hidden),
            draw.scales(),
            draw.scales(size=0.004),
            mask,
            np.array(draw.size(0, 255), np.uint8),
            np.array(draw.size(-20, 20), np.int8),
        ],
        attributes=attributes,
    )


@configuration("MultiHeadAttention")
def multi_head_attention(draw: Draw) -> Configuration:
    """Self and cross attention, a past, a bias of the projection, masks of the keys."""
    batch, length, heads, size = draw.size(1, 3), draw.size(1, 5), draw.size(1, 3), draw.size(1, 6)
    keys, hidden = draw.size(1, 6), heads * size
    kind = draw.one_of("cross", "past", "encoder")
    query = draw.floats(batch, length, hidden)
    key, value = draw.floats(batch, keys, hidden), draw.floats(batch, keys, hidden)
    past: list[Array | None] = [None, None]
    total = keys
    outputs: tuple[bool, ...] = (True,)
    if kind == "past":
        keys = length
        key, value = draw.floats(batch, keys, hidden), draw.floats(batch, keys, hidden)
        past = [draw.floats(batch, heads, 3, size), draw.floats(batch, heads, 3, size)]
        total = keys + 3
        outputs = (True, True, True)
    if kind == "encoder":
        key = draw.floats(batch, heads, keys, size)
        value = draw.floats(batch, heads, keys, size)
    mask = draw.integers(0, 2, batch, total).astype(np.int32)
    mask[:, 0] = 1
    bias = draw.maybe(draw.floats(3 * hidden)) if kind != "encoder" else None
    scores = draw.maybe(draw.floats(1, draw.one_of(1, heads), length, total))
    attributes = {"num_heads": heads}
    if kind == "past":
        attributes["unidirectional"] = int(draw.coin())
    inputs = [query, key, value, bias, draw.maybe(mask), scores, *past]
    return Configuration(inputs=inputs, attributes=attributes, outputs=outputs)


@configuration("DecoderMaskedMultiHeadAttention")
def decoder_attention(draw: Draw) -> Configuration:
    """One step: with a past, or against an encoder's keys."""
    batch, heads, size = draw.size(1, 3), draw.size(1, 3), 8 * draw.size(1, 2)
    hidden, keys = heads * size, draw.size(1, 6)
    query = draw.floats(batch, 1, hidden)
    encoder = draw.coin()
    if encoder:
        inputs: list[Array | None] = [
            query,
            draw.floats(batch, heads, keys, size),
            draw.floats(batch, heads, keys, size),
        ]
        return Configuration(inputs=inputs, attributes={"num_heads": heads})
    room = keys + draw.size(1, 3)
    past = [draw.floats(batch, heads, room, size), draw.floats(batch, heads, room, size)]
    mask = draw.integers(0, 2, batch, keys + 1).astype(np.int32)
    mask[:, -1] = 1
    inputs = [query, draw.floats(batch, 1, hidden), draw.floats(batch, 1, hidden)]
    inputs += [draw.maybe(mask), None, *past, np.array([keys], np.int32)]
    if draw.coin():
        inputs += [None, None, draw.floats(3 * hidden)]
    return Configuration(
        inputs=inputs,
        attributes={"num_heads": heads, "past_present_share_buffer": 1},
        outputs=(True, True, True),
    )


def _rows(query: Array, key: Array, value: Array, bias: Array | None, heads: int) -> Array:
    """Plain attention over one sequence, head by head, in float64."""
    answers = []
    for head, parts in enumerate(
        zip(
            *(np.split(x.astype(np.float64), heads, axis=1) for x in (query, key, value)),
            strict=True,
        )
    ):
        q, k, v = parts
        scores = np.einsum("id,jd->ij", q, k) / np.sqrt(q.shape[1])
        if bias is not None:
            scores = scores + bias[head % len(bias), : len(q), : len(q)]
        powers = np.exp(scores - scores.max())
        answers.append(np.einsum("ij,jd->id", powers / powers.sum(axis=1, keepdims=True), v))
    return np.concatenate(answers, axis=1)


def _packed(draw: Draw, batch: int) -> tuple[Array, Array]:
    """Offsets of real tokens before those of padding, and where each sequence ends."""
    lengths = draw.integers(1, 6, batch)
    width = int(lengths.max())
    offsets = np.arange(batch * width).reshape(batch, width)
    real = np.arange(width) < lengths[:, None]
    order = np.concatenate([offsets[real], offsets[~real]]).reshape(batch, width)
    return order.astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@configuration("PackedAttention")
def packed_attention(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy, sequence by sequence."""
    batch, heads, size = draw.size(1, 3), draw.size(1, 3), draw.size(1, 5)
    offsets, ends = _packed(draw, batch)
    hidden = heads * size
    x, w, b = draw.floats(ends[-1], 6), draw.floats(6, 3 * hidden), draw.floats(3 * hidden)
    bias = draw.maybe(draw.floats(1, heads, offsets.shape[1], offsets.shape[1]))
    projected = x.astype(np.float64) @ w + b
    first = None if bias is None else bias[0]
    wanted = [
        _rows(*np.split(projected[start:end], 3, axis=1), first, heads)
        for start, end in itertools.pairwise(ends)
    ]
    return Configuration(
        inputs=[x, w, b, offsets, ends, bias],
        attributes={"num_heads": heads},
        expected=[np.concatenate(wanted)],
    )


@configuration("PackedMultiHeadAttention")
def packed_multi_head_attention(draw: Draw) -> Configuration:
    """The same of what is projected already, packed or apart."""
    batch, heads, size = draw.size(1, 3), draw.size(1, 3), draw.size(1, 5)
    offsets, ends = _packed(draw, batch)
    hidden = heads * size
    parts = [draw.floats(ends[-1], hidden) for _ in range(3)]
    bias = draw.maybe(draw.floats(3 * hidden))
    added = parts
    if bias is not None:
        added = [part + piece for part, piece in zip(parts, np.split(bias, 3), strict=True)]
    wanted = [
        _rows(*(part[start:end] for part in added), None, heads)
        for start, end in itertools.pairwise(ends)
    ]
    inputs: list[Array | None] = [*parts, bias]
    if draw.coin():
        stacked = np.stack([part.reshape(-1, heads, size) for part in parts], axis=2)
        inputs = [np.ascontiguousarray(stacked), None, None, bias]
    return Configuration(
        inputs=[*inputs, offsets, ends],
        attributes={"num_heads": heads},
        expected=[np.concatenate(wanted)],
    )


@configuration("GroupQueryAttention")
def group_query_attention(draw: Draw) -> Configuration:
    """Prompts and steps, rows of several lengths, packed, windows, caps, sinks, positions inside, a shared buffer."""
    batch, shared, size = draw.size(1, 3), draw.size(1, 3), 16
    heads = shared * draw.size(1, 3)
    step = draw.coin()
    length = 1 if step else draw.size(1, 6)
    past = draw.integers(1, 6, batch) if step else np.zeros(batch, int)
    totals = past + length
    if not step and length > 1:  # rows of a prompt may be shorter; the rest is padding
        totals = draw.integers(1, length + 1, batch)
        totals[0] = length
    longest = int(totals.max())
    attributes: dict[str, Any] = {"num_heads": heads, "kv_num_heads": shared}
    parts = [draw.floats(batch, length, n * size) for n in (heads, shared, shared)]
    inputs: list[Array | None] = list(parts)
    if draw.coin():
        inputs = [np.concatenate(parts, axis=-1), None, None]
    if step:
        room = draw.one_of(int(past.max()), longest + 2) if len(set(past)) == 1 else longest + 2
        inputs += [draw.floats(batch, shared, room, size), draw.floats(batch, shared, room, size)]
    else:
        inputs += [None, None]
    inputs += [(totals - 1).astype(np.int32), np.array(longest, np.int32)]
    cos = sin = None
    if draw.coin():
        attributes |= {"do_rotary": 1, "rotary_interleaved": int(draw.coin())}
        angles = draw.rng.uniform(0, 6, (16, size // 2))
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    inputs += [cos, sin, None]
    inputs.append(draw.maybe(draw.floats(1, draw.one_of(1, heads), length, longest)))
    inputs.append(draw.maybe(draw.floats(heads)))
    if inputs[-1] is None and draw.coin():
        attributes["smooth_softmax"] = 1
    if draw.coin():
        attributes["softcap"] = float(draw.scales(size=3.0))
    if draw.coin():
        attributes["local_window_size"] = draw.size(1, 4)
    if draw.coin():
        attributes["scale"] = float(draw.scales(size=0.5))
    real = np.arange(length) < (totals - past)[:, None]
    return Configuration(
        inputs=inputs,
        attributes=attributes,
        outputs=(True, True, True),
        compared=np.broadcast_to(real[..., None], (batch, length, heads * size)),
    )
