"""The relative error of an array: rms of the difference over rms of the truth."""

from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real

Array = np.ndarray[Any, Any]
_PIECE = 1 << 20
"""Elements that are widened to float64 at a time: 8 MB for each side."""


def relative_error(values: Array | None, truth: Array) -> float:
    """The rms of the difference over the rms of the truth; infinite where there are no values, or of another shape.

    Elements that are not finite count by the share that differs, and so do integers that only float64 takes for equal. Neither array is copied whole.
    """
    if values is None:
        return float("inf")
    values = as_real(values)
    truth = as_real(truth)
    if values.shape != truth.shape:
        return float("inf")
    flat = values.reshape(-1)
    flat_truth = truth.reshape(-1)
    mismatches = 0
    power = 0.0
    scale = 0.0
    for start in range(0, flat.size, _PIECE):
        v = flat[start : start + _PIECE].astype(np.float64)
        t = flat_truth[start : start + _PIECE].astype(np.float64)
        mismatches += _zero_non_finite(v, t)
        v -= t
        power += float(np.dot(v, v))
        scale += float(np.dot(t, t))
    count = max(flat.size, 1)
    mean = power / (scale or count)
    if mean == 0 and flat.dtype.kind in "iu" and flat_truth.dtype.kind in "iu":
        mismatches = int(
            (flat != flat_truth).sum()
        )  # beyond 2**53 float64 does not tell them apart
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
