"""The relative error of an array: rms of the difference over rms of the truth."""

from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real
from onnxproof.numerics.port_values import encode

Array = np.ndarray[Any, Any]
_PIECE = 1 << 20
"""Elements that are widened to float64 at a time: 8 MB for each side."""
_EXACT = 2.0**53
"""From here on float64 has no place for every integer."""


def relative_error(values: Array | None, truth: Array) -> float:
    """The rms of the difference over the rms of the truth; infinite where there are no values, or of another shape.

    Elements that are not finite count by the share that differs, and so do integers so large that float64 can't tell how far they are apart. Neither array is copied whole.
    """
    if values is None:
        return float("inf")
    values = as_real(encode(values))
    truth = as_real(encode(truth))
    if values.shape != truth.shape:
        return float("inf")
    flat = values.reshape(-1)
    flat_truth = truth.reshape(-1)
    integers = flat.dtype.kind in "iu" and flat_truth.dtype.kind in "iu"
    mismatches = 0
    power = 0.0
    scale = 0.0
    for start in range(0, flat.size, _PIECE):
        piece = slice(start, start + _PIECE)
        v = flat[piece].astype(np.float64)
        t = flat_truth[piece].astype(np.float64)
        mismatches += _zero_non_finite(v, t)
        if integers:
            beyond = np.maximum(np.abs(v), np.abs(t)) >= _EXACT
            mismatches += int((beyond & (flat[piece] != flat_truth[piece])).sum())
        v -= t
        power += float(np.dot(v, v))
        scale += float(np.dot(t, t))
    count = max(flat.size, 1)
    mean = power / (scale or count)
    return float(mean**0.5 + (mismatches / count) ** 0.5)


def _zero_non_finite(v: Array, t: Array) -> int:
    """Set both to 0 where one is not finite, and count where they are not the same there."""
    odd = ~(np.isfinite(v) & np.isfinite(t))
    if not odd.any():
        return 0
    same = (v == t) | (np.isnan(v) & np.isnan(t))
    mismatches = int((odd & ~same).sum())
    v[odd] = 0.0
    t[odd] = 0.0
    return mismatches
