"""A factor and a shift for each channel, found by least squares."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_ROWS, _LEAST = 20_000, 8
"""Values that are asked at most, and values of a channel without which a fit says nothing."""


def fitted(columns: Array, target: Array) -> tuple[Array, float] | None:
    """Coefficients for which the columns add up to the target, and the relative error that is left; None where several would do."""
    if len(target) > _ROWS:
        chosen = np.random.default_rng(0).choice(len(target), _ROWS, replace=False)
        columns, target = columns[chosen], target[chosen]
    size = np.sqrt((columns**2).sum(0))
    if not (size > 0).all() or len(target) <= columns.shape[1]:
        return None
    found, _, rank, _ = np.linalg.lstsq(columns / size, target, rcond=1e-10)
    if rank < columns.shape[1]:
        return None
    left = target - columns / size @ found
    return found / size, float(np.sqrt((left**2).sum() / max((target**2).sum(), 1e-300)))


def by_channel(want: Array, got: Array, axis: int) -> tuple[Array, Array] | None:
    """`got = want * factor + shift` for each channel, as nearly as can be; None where a channel is constant or has too few values."""
    a, b = (
        np.moveaxis(v.astype(np.float64), axis, 0).reshape(v.shape[axis], -1) for v in (want, got)
    )
    spread = a.std(1)
    if a.shape[1] < _LEAST or not spread.all():
        return None
    factor = ((a - a.mean(1, keepdims=True)) * (b - b.mean(1, keepdims=True))).mean(1) / spread**2
    return factor, b.mean(1) - factor * a.mean(1)


def applied(array: Array, factor: Array, shift: Array, axis: int) -> Array:
    """The array with each channel scaled and shifted."""
    shape = [1] * array.ndim
    shape[axis] = len(factor)
    return array * factor.reshape(shape) + shift.reshape(shape)
