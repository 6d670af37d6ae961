"""A factor and a shift for each channel, found by least squares."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_MAX_ROWS = 20_000
"""Values that a fit looks at: a random choice of more would change little (not measured)."""
_MIN_VALUES = 8
"""Values of a channel below which a fit says nothing (not measured)."""


def fit_columns(columns: Array, target: Array) -> tuple[Array, float] | None:
    """Coefficients for which the columns add up to the target, and the relative error that remains; None if they are not unique."""
    if len(target) > _MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(target), _MAX_ROWS, replace=False)
        columns = columns[chosen]
        target = target[chosen]
    norm = np.sqrt((columns**2).sum(0))
    if not (norm > 0).all() or len(target) <= columns.shape[1]:
        return None
    coefficients, _, rank, _ = np.linalg.lstsq(columns / norm, target, rcond=1e-10)
    if rank < columns.shape[1]:
        return None
    residual = target - columns / norm @ coefficients
    relative = np.sqrt((residual**2).sum() / max((target**2).sum(), 1e-300))
    return coefficients / norm, float(relative)


def fit_channels(
    source: Array,
    target: Array,
    axis: int,
) -> tuple[Array, Array] | None:
    """Factor and shift of each channel in `target = source * factor + shift`; None if a channel is constant or has too few values."""
    x = channel_rows(source, axis)
    y = channel_rows(target, axis)
    spread = x.std(1)
    if x.shape[1] < _MIN_VALUES or not spread.all():
        return None
    covariance = ((x - x.mean(1, keepdims=True)) * (y - y.mean(1, keepdims=True))).mean(1)
    factor = covariance / spread**2
    return factor, y.mean(1) - factor * x.mean(1)


def channel_rows(array: Array, axis: int) -> Array:
    """The array in float64 with one row for each channel."""
    return np.moveaxis(array.astype(np.float64), axis, 0).reshape(array.shape[axis], -1)


def scale_channels(
    array: Array,
    factor: Array,
    shift: Array,
    axis: int,
) -> Array:
    """The array with each channel scaled and shifted."""
    shape = [1] * array.ndim
    shape[axis] = len(factor)
    return array * factor.reshape(shape) + shift.reshape(shape)
