"""A tensor in a hundred numbers: enough to tell how far two tensors are apart, without keeping either.

Random projections give the distance of two tensors in the same order; projections of the sorted values give it
whatever the layout, since exporters transpose and reshape freely. Sorting is the dearest part by far and seldom asked
for, so small tensors wait on a shelf until it is; a tensor that finds no room there is sorted at once and let go. Of a
large one a few means, the least and the largest value take the place of the sorted values.
"""

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.numerics.measure import as_real

Array = np.ndarray[Any, Any]
_WIDTH = 16
_BLOCK = 4096
_PIECE = 256 * _BLOCK
"""Numbers that are widened at a time: a sketch of a tensor of any size needs some megabytes."""
_SORTED_MOST = 1 << 19
_SHELF_BYTES = 96 << 20
_BOUND = 1e30
"""Masks are -inf on one side and the lowest float on the other: beyond this they are the same."""
_OTHER = 1e-3
"""The least distance of two arrays of integers that are not equal."""
_BASE = np.random.default_rng(5).standard_normal((_BLOCK, _WIDTH))


class Shelf:
    """Room for tensors that wait until their sorted values are asked for."""

    def __init__(self, room: int = _SHELF_BYTES) -> None:
        self._room = room

    def take(self, array: Array) -> Array | None:
        """A copy of the array, or None where there is no room for it."""
        if array.nbytes > self._room:
            return None
        self._room -= array.nbytes
        return np.array(array, order="C")


@dataclass(slots=True, kw_only=True)
class Sketch:
    """What is kept of a tensor."""

    shape: tuple[int, ...]
    count: int
    rms: float
    reach: float
    """From the least to the largest value."""
    nans: float
    bound: float
    """What is beyond counts as this; infinite where nothing is."""
    exact: bool
    """Integers and booleans: equal or not."""
    ordered: Array = field(default_factory=lambda: np.zeros(_WIDTH))
    digest: int = 0
    """Of integers every bit: beyond 2**53 a float no longer tells two of them apart."""
    held: Array | None = None
    """The tensor itself, while it waits on a shelf."""
    _unordered: Array | None = field(default=None, repr=False)

    @property
    def telling(self) -> bool:
        """Whether a match means anything: constants, lone numbers and flags match by accident."""
        return not self.exact and self.count >= 8 and self.reach > 1e-12 * max(self.rms, 1e-300)

    @property
    def unordered(self) -> Array | None:
        """What does not depend on the order of the values, in their own unit."""
        if self._unordered is None and self.held is not None:
            self._unordered = _without_order(self.held.reshape(-1), self)
        return self._unordered


def sketch(array: Array, shelf: Shelf | None = None) -> Sketch:
    """Make a sketch; `array` is not kept, unless the shelf has room for a copy."""
    array = as_real(np.asarray(array))
    exact = array.dtype.kind in "iub"
    flat = array.reshape(-1)
    rms, reach, nans, bound = _moments(flat)
    made = Sketch(
        shape=tuple(array.shape),
        count=flat.size,
        rms=rms,
        reach=reach,
        nans=nans,
        bound=bound,
        exact=exact,
        digest=zlib.crc32(np.ascontiguousarray(flat, np.int64).data) if exact else 0,
        held=shelf.take(array) if shelf is not None else None,
    )
    made.ordered = _project(_clean(flat, made), flat.size)
    if made.held is None:
        made._unordered = _without_order(flat, made)
    return made


def distance(a: Sketch, b: Sketch, *, any_order: bool = False) -> float:
    """How far two tensors are apart, relative to their scale; infinite for another number of values."""
    if a.count != b.count:
        return float("inf")
    if not any_order:
        return float(Pool([b]).distances(a)[0])
    left, right = a.unordered, b.unordered
    if left is None or right is None:
        return float("inf")
    return float(_relative(left - right, max(a.rms, b.rms)) + abs(a.nans - b.nans) ** 0.5)


class Pool:
    """Sketches of tensors with the same number of values, to be compared with one of that number all at once."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self._ordered = np.stack([s.ordered for s in sketches])
        self.rms, self._nans = (
            np.array([s.rms for s in sketches]),
            np.array([s.nans for s in sketches]),
        )
        self._exact, self._digest = (
            np.array([s.exact for s in sketches]),
            np.array([s.digest for s in sketches]),
        )

    def distances(self, value: Sketch) -> Array:
        """How far each is from `value` in the same order, relative to the larger scale."""
        scale = np.maximum(self.rms, value.rms)
        gaps = _relative(self._ordered - value.ordered, scale)
        if value.exact:
            other = self._exact & (self._digest != value.digest)
            gaps = np.where(other, np.maximum(gaps, _OTHER), gaps)
        if value.reach == 0:  # all false is not the same as a float that is zero everywhere
            gaps = np.where(self._exact != value.exact, np.maximum(gaps, _OTHER), gaps)
        return np.asarray(gaps + np.abs(self._nans - value.nans) ** 0.5)


def _relative(difference: Array, scale: Any) -> Any:
    """The root mean square of the last axis over the scale; 0 where there is no scale."""
    gap = np.sqrt(np.mean(difference**2, axis=-1))
    return np.divide(gap, scale, out=np.zeros_like(gap), where=np.asarray(scale) > 0)


def _moments(flat: Array) -> tuple[float, float, float, float]:
    """rms and reach of what is modest, the share of NaN, and where to clip, in one pass."""
    squares, count, missing, bound = 0.0, 0, 0, np.inf
    low, high = np.inf, -np.inf
    for piece in _pieces(flat):
        least, most = piece.min(), piece.max()
        if np.isnan(least):
            nan = np.isnan(piece)
            missing += int(nan.sum())
            piece[nan] = 0.0
            least, most = piece.min(), piece.max()
        if max(-least, most) >= _BOUND:
            bound = 1e3
            piece = piece[np.abs(piece) < _BOUND]
            least, most = piece.min(initial=np.inf), piece.max(initial=-np.inf)
        low, high = min(low, least), max(high, most)
        squares, count = squares + float(np.dot(piece, piece)), count + piece.size
    rms = (squares / count) ** 0.5 if count else 0.0
    return (
        rms,
        max(0.0, float(high - low)) if count else 0.0,
        missing / max(flat.size, 1),
        bound * max(rms, 1e-300),
    )


def _pieces(flat: Array) -> Iterator[Array]:
    """The values in float64, some at a time."""
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE].astype(np.float64)


def _clean(flat: Array, made: Sketch) -> Iterator[Array]:
    """The same with NaN as 0, and what is beyond every bound as a thousand times the rest."""
    for piece in _pieces(flat):
        if made.nans:
            piece[np.isnan(piece)] = 0.0
        yield piece if made.bound == np.inf else np.clip(piece, -made.bound, made.bound, out=piece)


def _without_order(flat: Array, made: Sketch) -> Array:
    """The projection of the sorted values, or for many of them their means and limits."""
    if flat.size <= _SORTED_MOST:
        whole = np.concatenate([*_clean(flat, made), np.zeros(0)])
        whole.sort()
        return _project([whole], flat.size)
    sums, low, high = np.zeros(3), np.inf, -np.inf
    for piece in _clean(flat, made):
        low, high = min(low, float(piece.min())), max(high, float(piece.max()))
        sums += [
            piece.sum(),
            np.abs(piece).sum(),
            float(np.dot(piece, piece * piece)) / max(made.rms, 1e-300) ** 2,
        ]
    return np.array([*(sums / flat.size), low, high])


def _project(pieces: Iterable[Array], count: int) -> Array:
    """Sixteen random projections; a piece begins at a multiple of the block."""
    total, block = np.zeros(_WIDTH), 0
    for piece in pieces:
        whole = piece.size // _BLOCK
        if whole:
            total += np.einsum(
                "bw,bw->w",
                piece[: whole * _BLOCK].reshape(whole, _BLOCK) @ _BASE,
                _signs(block, whole),
            )
        if rest := piece.size - whole * _BLOCK:
            total += (piece[whole * _BLOCK :] @ _BASE[:rest]) * _signs(block + whole, 1)[0]
        block += whole
    return np.asarray(total / np.sqrt(max(count, 1)))


def _signs(first: int, count: int) -> Array:
    """For each block its own signs, so that two blocks can't be exchanged unnoticed."""
    table = _sign_table()
    return np.asarray(table[np.arange(first, first + count) % len(table)])


@functools.cache
def _sign_table() -> Array:
    return np.random.default_rng(11).choice((-1.0, 1.0), (1 << 14, _WIDTH))
