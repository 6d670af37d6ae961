"""A tensor in a hundred numbers: enough to tell how far two tensors are apart, without keeping either.

Random projections give the distance of two tensors in the same order; projections of the sorted values give it
whatever the layout, since exporters transpose and reshape freely.
"""

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_WIDTH = 16
_BLOCK = 4096
_SORTED_MOST = 1 << 22
_BOUND = 1e30
"""Masks are -inf on one side and the lowest float on the other: beyond this they are the same."""
_OTHER = 1e-3
"""The least distance of two arrays of integers that are not equal."""
_BASE = np.random.default_rng(5).standard_normal((_BLOCK, _WIDTH))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """What is kept of a tensor."""

    shape: tuple[int, ...]
    count: int
    rms: float
    spread: float
    nans: float
    exact: bool
    """Integers and booleans: equal or not."""
    ordered: Array
    unordered: Array | None
    digest: int = 0
    """Of integers every bit: beyond 2**53 a float no longer tells two of them apart."""

    @property
    def telling(self) -> bool:
        """Whether a match means anything: constants, lone numbers and flags match by accident."""
        return not self.exact and self.count >= 8 and self.spread > 1e-12 * max(self.rms, 1e-300)


def sketch(array: Array) -> Sketch:
    """Make a sketch; `array` is not kept."""
    exact = array.dtype.kind in "iub"
    flat = np.asarray(array).reshape(-1).astype(np.float64)
    missing = np.isnan(flat)
    nans = float(missing.mean()) if flat.size else 0.0
    if nans:
        flat = np.where(missing, 0.0, flat)
    np.clip(flat, -_BOUND, _BOUND, out=flat)
    modest = flat[np.abs(flat) < _BOUND] if np.abs(flat).max(initial=0) >= _BOUND else flat
    rms = float(np.sqrt(np.mean(modest**2))) if modest.size else 0.0
    scaled = np.clip(flat, -1e3 * max(rms, 1e-300), 1e3 * max(rms, 1e-300)) if modest.size != flat.size else flat
    unordered = _project(np.sort(scaled)) if flat.size <= _SORTED_MOST else None
    return Sketch(shape=tuple(array.shape), count=flat.size, rms=rms, spread=float(modest.std()) if modest.size else 0.0, nans=nans, exact=exact,
                  ordered=_project(scaled), unordered=unordered, digest=zlib.crc32(np.ascontiguousarray(array).astype(np.int64).tobytes()) if exact else 0)


def distance(a: Sketch, b: Sketch, *, any_order: bool = False) -> float:
    """The rms of the difference over the rms of `b`, about; infinite where the counts differ."""
    if a.count != b.count:
        return float("inf")
    left, right = (a.unordered, b.unordered) if any_order else (a.ordered, b.ordered)
    if left is None or right is None:
        return float("inf")
    gap = float(np.sqrt(np.mean((left - right) ** 2)))
    if a.exact and b.exact and a.digest != b.digest and not any_order:
        return max(gap / max(a.rms, b.rms, 1e-300), _OTHER)
    scale = max(a.rms, b.rms)
    return float((gap / scale if scale else 0.0) + abs(a.nans - b.nans) ** 0.5)


def _project(flat: Array) -> Array:
    if not flat.size:
        return np.zeros(_WIDTH)
    total = np.zeros(_WIDTH)
    signs = np.random.default_rng(11)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        total += (block @ _BASE[: block.size]) * signs.choice((-1.0, 1.0), _WIDTH)
    return np.asarray(total / np.sqrt(flat.size))
