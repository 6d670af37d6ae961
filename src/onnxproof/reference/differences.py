"""How far two outputs of a reference are from each other, as the checks of its reliability measure it."""

import math
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real, eps, is_float

Array = np.ndarray[Any, Any]
_ALIKE = 64.0
"""Units in the last place, at the output's own size, by which two runs may differ: threads add up in another order. Not measured."""
FLIPPED = 0.05
"""Share of integers that differ from the truth from which on it is examined. Not measured."""


def alike(one: Array, other: Array | None) -> bool:
    """Equal up to the order in which threads add up; integers exactly."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.tobytes() == other.tobytes():
        return True
    one, other = as_real(one), as_real(other)
    return (
        is_float(one)
        and _same_finite(one, other)
        and distance(one, other) <= _ALIKE * eps(one.dtype) * size(one)
    )


def lost_share(reference: Array, truth: Array) -> float:
    """The share of the elements that are numbers in the reference, and none in the truth."""
    if not reference.size:
        return 0.0
    return float((np.isfinite(_wide(reference)) & ~np.isfinite(_wide(truth))).mean())


def _same_finite(one: Array, other: Array) -> bool:
    return bool((np.isfinite(_wide(one)) == np.isfinite(_wide(other))).all())


def _wide(array: Array) -> Array:
    return as_real(array).astype(np.float64)


def distance(one: Array, other: Array) -> float:
    """The rms of the difference where both are finite; of integers and booleans the share that differs."""
    if not is_float(one) and one.dtype.kind != "c":
        return float((one != other).mean()) if one.size else 0.0
    with np.errstate(all="ignore"):
        return _rms(_wide(one) - _wide(other))


def size(array: Array) -> float:
    """The rms of what is finite."""
    return _rms(_wide(array))


def _rms(wide: Array) -> float:
    finite = wide[np.isfinite(wide)]
    with np.errstate(over="ignore"):
        return math.sqrt(float(np.mean(np.square(finite)))) if finite.size else 0.0


def describe_difference(one: Array, other: Array | None) -> str:
    """The difference in words, for a finding."""
    if other is None or one.shape != other.shape:
        return "has another shape then, or none"
    if not is_float(one) and one.dtype.kind != "c":
        return f"differs in {distance(one, other):.0%} of its elements"
    lost = lost_share(one, other)
    if lost > FLIPPED:
        return f"{lost:.0%} of it is not finite in the second"
    rms = distance(one, other)
    own = size(one)
    share = f", {rms / own:.2g} of its own size" if own else ""
    return f"differs by {rms:.3g} (rms){share}"
