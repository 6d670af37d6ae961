"""A tensor in a hundred numbers: enough to measure the distance of two tensors, without keeping either.

Random projections give the distance of two tensors in the same order; projections of the sorted values give it
whatever the layout, since exporters transpose and reshape freely. Sorting costs most by far and is seldom asked
for, so small tensors are kept until it is; where there is no memory left for one, it is sorted at once. Of a
large one a few means, the least and the largest value take the place of the sorted values.
"""

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real
from onnxproof.numerics.port_values import encode

Array = np.ndarray[Any, Any]
_WIDTH = 16
"""Projections of a tensor: two that differ have the same ones with a probability of nearly 0."""
_BLOCK = 4096
"""Elements that are projected by one matrix."""
_PIECE = 256 * _BLOCK
"""Elements that are widened at a time: a sketch of a tensor of any size needs some megabytes."""
_MOST_SORTED = 1 << 19
"""Elements beyond which a tensor is not sorted. Not measured."""
_KEPT_BYTES = 96 << 20
"""Memory for tensors that may still be sorted. Not measured."""
_HUGE = 1e30
"""Masks are -inf on one side and the lowest float on the other: beyond this they are the same."""
_HUGE_FACTOR = 1e3
"""What is beyond counts as this many times the rms of the rest, rounded up to a power of 2."""
_TINY = 1e-300
_LEAST_DISTANCE = 1e-3
"""Of two arrays of integers that are not equal. Not measured."""
_LEAST_COUNT = 8
"""Elements from which on a match is hardly an accident. Not measured."""
_BASE = np.random.default_rng(5).standard_normal((_BLOCK, _WIDTH))


class KeptArrays:
    """Memory for tensors whose sorted values may still be asked for."""

    def __init__(self, most_bytes: int = _KEPT_BYTES) -> None:
        self._left = most_bytes

    def keep(self, array: Array) -> Array | None:
        """A copy of the array, or None where there is no memory left for it."""
        if array.nbytes > self._left:
            return None
        self._left -= array.nbytes
        return np.array(array, order="C")


@dataclass(frozen=True, slots=True)
class _Moments:
    """What one pass over the elements gives."""

    rms: float
    """Of what is not huge; 1 where nothing else is there, or it is 0: a mask has no scale of its own."""
    extent: float
    """From the least to the largest of what is not huge."""
    nan_share: float
    clip: float
    """Where huge values are clipped; infinite where there are none."""


@dataclass(slots=True, kw_only=True)
class Sketch:
    """What is kept of a tensor."""

    shape: tuple[int, ...]
    count: int
    moments: _Moments
    exact: bool
    """Integers and booleans: equal or not."""
    projection: Array = field(default_factory=lambda: np.zeros(_WIDTH))
    """Of the elements in their order."""
    digest: int = 0
    """Of integers every bit: beyond 2**53 a float no longer distinguishes two of them."""
    kept: Array | None = None
    """The tensor itself, as long as it may still be sorted."""
    _sorted_projection: Array | None = field(default=None, repr=False)

    @property
    def rms(self) -> float:
        """The root mean square of the elements."""
        return self.moments.rms

    @property
    def informative(self) -> bool:
        """Whether a match means anything: constants, single numbers and flags match by accident."""
        if self.exact or self.count < _LEAST_COUNT:
            return False
        return self.moments.extent > 1e-12 * max(self.rms, _TINY)

    @property
    def sorted_projection(self) -> Array | None:
        """What does not depend on the order of the elements, in their own unit."""
        if self._sorted_projection is None and self.kept is not None:
            self._sorted_projection = _project_sorted(self.kept.reshape(-1), self.moments)
        return self._sorted_projection


def sketch(array: Array, kept_arrays: KeptArrays | None = None) -> Sketch:
    """Make a sketch; `array` is not kept, unless there is memory for a copy."""
    array = as_real(encode(np.asarray(array)))
    flat = array.reshape(-1)
    moments = _measure_moments(flat)
    result = Sketch(
        shape=tuple(array.shape),
        count=flat.size,
        moments=moments,
        exact=array.dtype.kind in "iub",
    )
    if result.exact:
        result.digest = zlib.crc32(np.ascontiguousarray(flat, np.int64).data)
    if kept_arrays is not None:
        result.kept = kept_arrays.keep(array)
    result.projection = _project(_clipped_pieces(flat, moments), flat.size)
    if result.kept is None:
        result._sorted_projection = _project_sorted(flat, moments)
    return result


def distance(
    a: Sketch,
    b: Sketch,
    *,
    any_order: bool = False,
) -> float:
    """The distance of two tensors, relative to their scale; infinite for another number of elements."""
    if a.count != b.count:
        return float("inf")
    if not any_order:
        return float(Pool([b]).distances(a)[0])
    left = a.sorted_projection
    right = b.sorted_projection
    if left is None or right is None:
        return float("inf")
    nan_gap = abs(a.moments.nan_share - b.moments.nan_share) ** 0.5
    return float(_relative_rms(left - right, max(a.rms, b.rms)) + nan_gap)


class Pool:
    """Sketches of tensors with the same number of elements, to be compared with another one all at once."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._projections = np.stack([s.projection for s in sketches])
        self.rms = np.array([s.rms for s in sketches])
        self._nan_shares = np.array([s.moments.nan_share for s in sketches])
        self._exact = np.array([s.exact for s in sketches])
        self._digests = np.array([s.digest for s in sketches])

    def distances(self, value: Sketch) -> Array:
        """The distance of each from `value` in the same order, relative to the larger scale."""
        scale = np.maximum(self.rms, value.rms)
        gaps = _relative_rms(self._projections - value.projection, scale)
        if value.exact:
            differs = self._exact & (self._digests != value.digest)
            gaps = np.where(differs, np.maximum(gaps, _LEAST_DISTANCE), gaps)
        if value.moments.extent == 0:  # all false is not the same as a float that is 0 everywhere
            differs = self._exact != value.exact
            gaps = np.where(differs, np.maximum(gaps, _LEAST_DISTANCE), gaps)
        nan_gaps = np.abs(self._nan_shares - value.moments.nan_share) ** 0.5
        return np.asarray(gaps + nan_gaps)


def _relative_rms(difference: Array, scale: Any) -> Any:
    """The root mean square of the last axis over the scale; 0 where there is no scale."""
    gap = np.sqrt(np.mean(difference**2, axis=-1))
    return np.divide(
        gap,
        scale,
        out=np.zeros_like(gap),
        where=np.asarray(scale) > 0,
    )


def _measure_moments(flat: Array) -> _Moments:
    """One pass over the elements: NaN counts as 0, and huge values are left out."""
    power = 0.0
    count = 0
    nans = 0
    clip = np.inf
    low = np.inf
    high = -np.inf
    for piece in _pieces(flat):
        if np.isnan(piece.min()):
            is_nan = np.isnan(piece)
            nans += int(is_nan.sum())
            piece[is_nan] = 0.0
        if max(-piece.min(), piece.max()) >= _HUGE:
            clip = _HUGE_FACTOR
            piece = piece[np.abs(piece) < _HUGE]
        low = min(low, piece.min(initial=np.inf))
        high = max(high, piece.max(initial=-np.inf))
        power += float(np.dot(piece, piece))
        count += piece.size
    rms = (power / max(count, 1)) ** 0.5
    if rms == 0 and clip != np.inf:
        rms = 1.0
    extent = 0.0
    if count:
        extent = max(0.0, float(high - low))
    return _Moments(
        rms, extent, nans / max(flat.size, 1), clip * _next_power_of_two(max(rms, _TINY))
    )


def _next_power_of_two(value: float) -> float:
    """The same for nearly equal values: a limit of a thousand times the rms itself would make its rounding a thousand times larger."""
    return float(2.0 ** np.ceil(np.log2(value)))


def _pieces(flat: Array) -> Iterator[Array]:
    """The elements in float64, some at a time."""
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE].astype(np.float64)


def _clipped_pieces(flat: Array, moments: _Moments) -> Iterator[Array]:
    """The same with NaN as 0, and huge values clipped."""
    for piece in _pieces(flat):
        if moments.nan_share:
            piece[np.isnan(piece)] = 0.0
        if moments.clip != np.inf:
            np.clip(piece, -moments.clip, moments.clip, out=piece)
        yield piece


def _project_sorted(flat: Array, moments: _Moments) -> Array:
    """The projection of the sorted elements, or for many of them their means and limits."""
    if flat.size > _MOST_SORTED:
        return _means_and_limits(flat, moments)
    elements = np.concatenate([*_clipped_pieces(flat, moments), np.zeros(0)])
    elements.sort()
    return _project([elements], flat.size)


def _means_and_limits(flat: Array, moments: _Moments) -> Array:
    """Mean, mean magnitude, skew, least and largest element."""
    sums = np.zeros(3)
    low = np.inf
    high = -np.inf
    for piece in _clipped_pieces(flat, moments):
        low = min(low, float(piece.min()))
        high = max(high, float(piece.max()))
        cubes = float(np.dot(piece, piece * piece))
        sums += [piece.sum(), np.abs(piece).sum(), cubes / max(moments.rms, _TINY) ** 2]
    return np.array([*(sums / flat.size), low, high])


def _project(pieces: Iterable[Array], count: int) -> Array:
    """Sixteen random projections; a piece begins at a multiple of the block."""
    total = np.zeros(_WIDTH)
    block = 0
    for piece in pieces:
        blocks = piece.size // _BLOCK
        split = blocks * _BLOCK
        if blocks:
            projected = piece[:split].reshape(blocks, _BLOCK) @ _BASE
            total += np.einsum("bw,bw->w", projected, _signs(block, blocks))
        rest = piece.size - split
        if rest:
            total += (piece[split:] @ _BASE[:rest]) * _signs(block + blocks, 1)[0]
        block += blocks
    return np.asarray(total / np.sqrt(max(count, 1)))


def _signs(first: int, count: int) -> Array:
    """For each block its own signs, so that two blocks can't be exchanged unnoticed."""
    table = _sign_table()
    return np.asarray(table[np.arange(first, first + count) % len(table)])


@functools.cache
def _sign_table() -> Array:
    """Random signs for the blocks; made once."""
    return np.random.default_rng(11).choice((-1.0, 1.0), (1 << 14, _WIDTH))
