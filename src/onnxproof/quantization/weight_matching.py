"""Which float array an integer constant of a quantized graph comes from: tools rename, transpose and fold, so values decide and names help."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxproof.quantization.qdq import Weight

Array = np.ndarray[Any, Any]
_LARGEST_DIFFERENCE = 0.35
"""Relative rms between a dequantized weight and the float weight it comes from: 4-bit weights stay below."""
_INT32_MAX = 2**31 - 1


def is_saturated(integers: Array) -> Array:
    """Where int32 values ran into the end of their type."""
    return np.asarray(np.abs(integers.astype(np.int64)) >= _INT32_MAX)


def find_original(
    weight: Weight, floats: Mapping[str, Array], *, by_name: bool = False
) -> Array | None:
    """The float array that a constant comes from, as it lies or transposed.

    1. Candidates have the same shape, and are ranked by their relative difference, without saturated values.
    2. With `by_name`, the nearest one whose name the constant's begins with (tools keep it) is taken.
    3. Else the nearest one, if its values fit or the constant is saturated somewhere.
    """
    dequantized = weight.floats
    comparable = ~is_saturated(weight.integers)
    ranked = sorted(
        (
            (_relative_difference(dequantized[comparable], array[comparable]), name, array)
            for name, array in _same_shape(dequantized, floats)
        ),
        key=lambda candidate: candidate[0],
    )
    if by_name:
        for _, name, array in ranked:
            if name and (weight.name.startswith(name) or weight.result.startswith(name)):
                return array
    if not ranked:
        return None
    difference, _, nearest = ranked[0]
    if difference < _LARGEST_DIFFERENCE or not comparable.all():
        return nearest
    return None


def _same_shape(dequantized: Array, floats: Mapping[str, Array]) -> list[tuple[str, Array]]:
    candidates = []
    for name, array in floats.items():
        layouts = (array, array.T) if array.ndim == 2 else (array,)
        candidates += [
            (name, layout.astype(np.float64))
            for layout in layouts
            if layout.shape == dequantized.shape
        ]
    return candidates


def _relative_difference(a: Array, b: Array) -> float:
    """Rms of the difference over the rms of `b`; infinite where `b` is empty or zero."""
    if not b.size:
        return math.inf
    size = float(np.sqrt((b**2).mean()))
    if not size:
        return math.inf
    return float(np.sqrt(((a - b) ** 2).mean())) / size
