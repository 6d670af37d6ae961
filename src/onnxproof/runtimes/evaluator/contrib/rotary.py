"""Rotary positions: pairs of values that are turned by an angle which grows with the place in the sequence."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.contrib.operator import Contrib
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


def rotate(x: Array, cos: Array, sin: Array, *, interleaved: bool) -> Array:
    """The first values of the last axis, as many as there are cosines and sines together, turned.

    Pairs are neighbours where `interleaved`, else they are half of the turned width apart. Values behind it stay.
    """
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width], x[..., width:]
    if interleaved:
        real, imaginary = turned[..., 0::2], turned[..., 1::2]
    else:
        real, imaginary = np.split(turned, 2, axis=-1)
    new_real = real * cos - imaginary * sin
    new_imaginary = real * sin + imaginary * cos
    if interleaved:
        pairs = np.stack([new_real, new_imaginary], axis=-1).reshape(turned.shape)
    else:
        pairs = np.concatenate([new_real, new_imaginary], axis=-1)
    return np.concatenate([pairs, rest], axis=-1)


class RotaryEmbedding(Contrib):
    """Queries or keys in either layout; one position stands for the first of consecutive ones."""

    def _run(
        self,
        x: Array,
        position_ids: Array,
        cos_cache: Array,
        sin_cache: Array,
        interleaved: int = 0,
        num_heads: int = 0,
        rotary_embedding_dim: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        wide = widen(x)
        if x.ndim == 3:
            size = 2 * cos_cache.shape[1]
            if rotary_embedding_dim:
                size = x.shape[2] // num_heads
            wide = wide.reshape(*x.shape[:2], -1, size).swapaxes(1, 2)
        positions = position_ids
        if position_ids.size == 1:
            positions = np.broadcast_to(
                position_ids.reshape(()) + np.arange(wide.shape[2]), (len(x), wide.shape[2])
            )
        cos = cos_cache[positions][:, None]
        sin = sin_cache[positions][:, None]
        y = rotate(wide, cos, sin, interleaved=bool(interleaved))
        if x.ndim == 3:
            y = y.swapaxes(1, 2).reshape(x.shape)
        return (y.astype(x.dtype),)


class GemmaRotaryEmbedding(Contrib):
    """Queries and keys whose halves another node has swapped already; the angles are an input."""

    def _run(
        self,
        angles: Array,
        query: Array,
        swapped_query: Array,
        key: Array,
        swapped_key: Array,
        **_: Any,
    ) -> tuple[Array, Array]:
        cos, sin = np.cos(widen(angles))[:, None], np.sin(widen(angles))[:, None]
        turned_query = widen(query) * cos + widen(swapped_query) * sin
        turned_key = widen(key) * cos + widen(swapped_key) * sin
        return turned_query.astype(query.dtype), turned_key.astype(key.dtype)


OPERATORS: dict[str, type[OpRun]] = {
    "GemmaRotaryEmbedding": GemmaRotaryEmbedding,
    "RotaryEmbedding": RotaryEmbedding,
}
