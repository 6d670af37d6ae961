"""Inputs moved by the smallest step of their dtype: what any model must bear."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxproof.numerics.measure import eps, is_float

Array = np.ndarray[Any, Any]


def move_by_ulp(arrays: Mapping[str, Array], seed: int, amplitude: float = 1.0) -> dict[str, Array]:
    """Every float moved by so many steps of its own dtype, up or down at random; zeros and what is not finite stay."""
    rng = np.random.default_rng(seed)
    moved: dict[str, Array] = {}
    for name, array in arrays.items():
        if not is_float(array):
            moved[name] = array
            continue
        step = rng.choice([-1.0, 1.0], array.shape) * eps(array.dtype) * amplitude
        wide = array.astype(np.float64)
        with np.errstate(all="ignore"):
            moved_wide = np.where(np.isfinite(wide), wide * (1 + step), wide)
            moved[name] = moved_wide.astype(array.dtype)
    return moved
