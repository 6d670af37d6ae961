"""A mistake: one step of a preprocessing done differently, tested by doing it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CLOSE = 1e-5
"""Share of a tensor's largest value up to which two tensors count as equal: float32 arithmetic in another order."""


def _no_result(*raw: Any) -> Array:
    return np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPair:
    """The tensors that the model's own preprocessing and the deployment's compute from one raw input."""

    own: Array
    deployed: Array
    raw: tuple[Any, ...] = ()
    run_own: Callable[..., Array] = _no_result
    """The model's own preprocessing, from raw inputs to this tensor."""
    run_deployed: Callable[..., Array] = _no_result

    @property
    def raw_array(self) -> Array | None:
        """The raw input, if it is one array."""
        if len(self.raw) != 1:
            return None
        raw = self.raw[0]
        if hasattr(raw, "detach"):
            raw = raw.detach().cpu().numpy()
        if isinstance(raw, np.ndarray):
            return raw
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake in words, the tensor that it produces, and the tensor to compare that with: the deployment's by default."""

    description: str
    result: Array
    target: Array | None = None
    proven: bool = True
    """False if the mistake was only recognised, not reproduced: such an explanation is likely, not proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why two preprocessings differ; the description is empty if no mistake explains it."""

    description: str = ""
    residual: float = 1.0
    """The relative difference that remains after the mistake is reproduced."""
    proven: bool = False


def largest_magnitude(array: Array) -> float:
    """The largest absolute value, or 1 if all are zero."""
    return float(np.abs(array.astype(np.float64)).max(initial=0)) or 1.0


def max_difference(first: Array, second: Array) -> float:
    """The largest absolute difference, computed in float64."""
    difference = first.astype(np.float64) - second.astype(np.float64)
    return float(np.abs(difference).max(initial=0))


def nearly_equal(own: Array, deployed: Array) -> bool:
    """Equal up to the rounding of float32 arithmetic in another order; integers must be equal."""
    if own.shape != deployed.shape:
        return False
    if not has_floats(own, deployed):
        return bool((own == deployed).all())
    first = own.astype(np.float64)
    second = deployed.astype(np.float64)
    both_nan = np.isnan(first) & np.isnan(second)
    difference = np.abs((first - second)[~both_nan])
    return bool(difference.max(initial=0) <= CLOSE * largest_magnitude(own))


def has_floats(first: Array, second: Array) -> bool:
    """True if at least one of the two arrays holds floating point numbers."""
    return "f" in first.dtype.kind + second.dtype.kind
