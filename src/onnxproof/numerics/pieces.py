"""Walking large arrays in pieces, so that no float64 copy of a whole tensor is made."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_PIECE = 1 << 16
"""Elements of a piece: half a megabyte in float64, which stays in the cache."""


def pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Flat float64 copies of the same places of all arrays."""
    flat = [array.reshape(-1) for array in arrays]
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat[0].size, _PIECE):
            yield tuple(array[start : start + _PIECE].astype(np.float64) for array in flat)


def dot(a: Array, b: Array) -> float:
    """Not `a @ b`: its threads wait for each other longer than these short vectors take."""
    return float(np.add.reduce(a * b))


def finite(array: Array) -> Array:
    """The finite elements."""
    usable = np.isfinite(array)
    if usable.all():
        return array
    return array[usable]


def peak(array: Array) -> float:
    """The largest magnitude; 0 for an empty array."""
    if not array.size:
        return 0.0
    return max(float(array.max()), -float(array.min()))


def root_mean(total: float, count: int) -> float:
    """The root of a mean, from the sum; 0 for nothing."""
    if not count:
        return 0.0
    return math.sqrt(total / count)
