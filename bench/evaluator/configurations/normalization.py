"""Normalizations and rotary positions."""

import numpy as np

from bench.evaluator.configurations.draw import Array, Configuration, Draw, configuration


@configuration("SkipLayerNormalization")
def skip_layer_norm(draw: Draw) -> Configuration:
    """With and without the shift, the bias, and the sum as an output."""
    width = draw.size(4, 20)
    x = draw.floats(2, draw.size(1, 5), width)
    inputs = [x, draw.floats(*x.shape), draw.floats(width)]
    inputs += [draw.maybe(draw.floats(width)), draw.maybe(draw.floats(width))]
    return Configuration(
        inputs=inputs,
        attributes={"epsilon": draw.one_of(1e-12, 1e-5, 1e-2)},
        outputs=draw.one_of((True,), (True, False, False, True)),
    )


@configuration("SkipSimplifiedLayerNormalization")
def skip_simplified(draw: Draw) -> Configuration:
    """With and without the bias and the sum as an output."""
    width = draw.size(2, 20)
    x = draw.floats(2, draw.size(1, 5), width)
    return Configuration(
        inputs=[x, draw.floats(*x.shape), draw.floats(width), draw.maybe(draw.floats(width))],
        attributes={"epsilon": draw.one_of(1e-12, 1e-5, 1e-2)},
        outputs=draw.one_of((True,), (True, False, False, True)),
    )


@configuration("SimplifiedLayerNormalization")
def simplified(draw: Draw) -> Configuration:
    """It lives in the standard's domain."""
    width = draw.size(2, 20)
    x = draw.floats(2, draw.size(1, 5), width)
    return Configuration(
        inputs=[x, draw.floats(width)],
        attributes={"epsilon": draw.one_of(1e-6, 1e-2), "axis": -1, "stash_type": 1},
        domain="",
    )


@configuration("EmbedLayerNormalization")
def embed_layer_norm(draw: Draw) -> Configuration:
    """With and without segments, a mask, positions, and the sum as an output."""
    width, length = draw.size(2, 12), draw.size(1, 7)
    shape = (draw.size(1, 3), length)
    segments = draw.coin()
    mask = np.sort(draw.integers(0, 2, *shape), axis=1)[:, ::-1].astype(np.int32)
    positions = draw.maybe(draw.integers(0, 9, *shape).astype(np.int32))
    return Configuration(
        inputs=[
            draw.integers(0, 11, *shape).astype(np.int32),
            draw.integers(0, 2, *shape).astype(np.int32) if segments else None,
            draw.floats(11, width),
            draw.floats(9, width),
            draw.floats(2, width) if segments else None,
            draw.floats(width),
            draw.floats(width),
            draw.maybe(np.ascontiguousarray(mask)),
            positions,
        ],
        attributes={"epsilon": 1e-5},
        outputs=draw.one_of((True, True), (True, True, True)),
    )


def _group_norm(
    x: Array, gamma: Array, beta: Array, *, groups: int, activation: int, epsilon: float
) -> Array:
    """Channels last, group by group."""
    wide = x.astype(np.float64)
    width = x.shape[-1] // groups
    out = np.empty_like(wide)
    for group in range(groups):
        part = wide[..., group * width : (group + 1) * width]
        for image, answer in zip(part, out[..., group * width : (group + 1) * width], strict=True):
            answer[...] = (image - image.mean()) / np.sqrt(image.var() + epsilon)
    out = out * gamma + beta
    if activation:
        out = out / (1 + np.exp(-out))
    return out


def _drawn_group_norm(draw: Draw, skips: bool) -> Configuration:
    groups = draw.size(1, 4)
    channels = groups * draw.size(1, 4)
    x = draw.floats(draw.size(1, 3), 3, draw.size(1, 4), channels)
    gamma, beta = draw.floats(channels), draw.floats(channels)
    activation, last = draw.one_of(0, 1), draw.one_of(0, 1)
    attributes = {"groups": groups, "activation": activation, "channels_last": last}
    added, inputs = x, [x, gamma, beta]
    if skips:
        skip = draw.one_of(draw.floats(*x.shape), draw.floats(len(x), channels))
        bias = draw.maybe(draw.floats(channels))
        wide = skip if skip.ndim == 4 else skip[:, None, None, :]
        added = x.astype(np.float64) + wide
        if bias is not None:
            added = added + bias
        inputs = [x, gamma, beta, skip, bias]
    wanted = _group_norm(
        added, gamma, beta, groups=groups, activation=activation, epsilon=np.float32(1e-5)
    )
    expected = [wanted]
    if not last:
        inputs = [_channels_first(value) for value in inputs]
        expected = [_channels_first(value) for value in expected]
    return Configuration(inputs=inputs, attributes=attributes, expected=expected)


def _channels_first(value: Array | None) -> Array | None:
    if value is None or value.ndim != 4:
        return value
    return np.ascontiguousarray(np.moveaxis(value, -1, 1))


@configuration("GroupNorm")
def group_norm(draw: Draw) -> Configuration:
    """The CPU has no kernel: by numpy, group by group."""
    return _drawn_group_norm(draw, skips=False)


@configuration("SkipGroupNorm")
def skip_group_norm(draw: Draw) -> Configuration:
    """The same of a sum."""
    return _drawn_group_norm(draw, skips=True)


@configuration("GatedRMSNorm")
def gated_rms_norm(draw: Draw) -> Configuration:
    """Several groups in a row, both gates."""
    width, groups = draw.size(2, 9), draw.size(1, 3)
    x = draw.floats(2, 3, width * groups)
    return Configuration(
        inputs=[x, draw.floats(width), draw.floats(*x.shape)],
        attributes={"activation": draw.one_of("silu", "swish", "sigmoid"), "epsilon": 1e-5},
    )


@configuration("RotaryEmbedding")
def rotary(draw: Draw) -> Configuration:
    """Both layouts, both kinds of pairs, one position or all, part of a head."""
    batch, heads, length = draw.size(1, 3), draw.size(1, 3), draw.size(1, 5)
    size = 8 * draw.size(1, 3)
    partial = draw.coin() and size > 8
    width = size - 8 if partial else size
    angles = draw.rng.uniform(0, 6, (12, width // 2))
    attributes = {"interleaved": int(draw.coin())}
    if partial:
        attributes |= {"rotary_embedding_dim": width, "num_heads": heads}
    x = draw.floats(batch, length, heads * size)
    if draw.coin():
        x = draw.floats(batch, heads, length, size)
    positions = draw.integers(0, 12, batch, length)
    if draw.coin():
        positions = draw.integers(0, 12 - length, 1)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    return Configuration(inputs=[x, positions, cos, sin], attributes=attributes)


@configuration("GemmaRotaryEmbedding")
def gemma_rotary(draw: Draw) -> Configuration:
    """The CPU has no kernel: by complex numbers, whose halves are swapped with a sign."""
    batch, heads, length, half = draw.size(1, 3), draw.size(1, 3), draw.size(1, 4), draw.size(1, 5)
    angles = draw.rng.uniform(0, 6, (batch, length, half))
    turn = np.exp(1j * angles.astype(np.float32).astype(np.float64))[:, None]
    inputs: list[Array | None] = [np.concatenate([angles] * 2, axis=-1).astype(np.float32)]
    expected = []
    for _ in range(2):
        x = draw.floats(batch, heads, length, 2 * half)
        real, imaginary = x[..., :half], x[..., half:]
        inputs += [x, np.concatenate([-imaginary, real], axis=-1)]
        turned = (real + 1j * imaginary.astype(np.float64)) * turn
        expected.append(np.concatenate([turned.real, turned.imag], axis=-1))
    return Configuration(inputs=inputs, outputs=(True, True), expected=expected)
