"""For every value of the file the nearest value that the module computed.

In float64 there is no noise to speak of: a right value is found among the module's own to about 1e-7 (constants are
rounded to float32 in the file), a wrong one is not.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxproof.diagnosis import limits
from onnxproof.numerics.sketch import Pool, Sketch, distance

if TYPE_CHECKING:
    from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Match:
    """A value of the file and the traced value nearest to it."""

    sketch: Sketch
    traced: "TracedValue | None"
    gap: float
    same_layout: bool = True

    def is_right(self, tolerance: float) -> bool:
        """Whether the value is the traced one; integers must be equal."""
        if self.sketch.exact:
            return self.gap <= 0.0
        return self.gap <= tolerance


def match(
    values: Mapping[str, Sketch],
    traced: "Sequence[TracedValue]",
    tolerance: float = limits.FLOAT64_RESOLUTION,
) -> dict[str, Match]:
    """For every value the nearest traced one: in the same order where it can be, in any order otherwise."""
    by_count: dict[int, list[TracedValue]] = defaultdict(list)
    for value in traced:
        by_count[value.sketch.count].append(value)
    searches = {
        count: _Search(options, Pool([option.sketch for option in options]), tolerance)
        for count, options in by_count.items()
    }
    matches: dict[str, Match] = {}
    for name, sketch in values.items():
        search = searches.get(sketch.count)
        if search is None:
            matches[name] = Match(sketch, None, float("inf"))
        else:
            matches[name] = search.nearest(sketch)
    return matches


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks among the traced values of one number of elements."""

    options: "Sequence[TracedValue]"
    pool: Pool
    tolerance: float

    def nearest(self, sketch: Sketch) -> Match:
        """The match of one value.

        1. The same values in the same shape, but in another order, are a fault; even where the order is that of a
           traced value of another shape: a reshape that was to read a transposed value has it so.
        2. The same values in the same order: of several the nearest that is a whole operation's result.
        3. The same values in another shape and order are a transposed copy, and right.
        4. Otherwise the nearest in the same order, which is wrong.
        """
        gaps = self.pool.distances(sketch)
        hits = np.flatnonzero(gaps <= self.tolerance).tolist()
        best = int(np.argmin(gaps))
        if not sketch.exact and not self._has_shape(hits, sketch):
            moved = self._find_reordered(sketch, gaps, same_shape=True)
            if moved is not None:  # step 1
                return Match(sketch, self.options[moved], float(gaps[moved]))
        if hits:  # step 2
            whole = [place for place in hits if self.options[place].outer is None]
            chosen = min(
                whole,
                key=lambda place: gaps[place],
                default=best,
            )
            return Match(sketch, self.options[chosen], float(gaps[best]))
        if not sketch.exact:
            transposed = self._find_reordered(sketch, gaps, same_shape=False)
            if transposed is not None:  # step 3
                return Match(sketch, self.options[transposed], 0.0, same_layout=False)
        return Match(sketch, self.options[best], float(gaps[best]))  # step 4

    def _has_shape(self, places: Sequence[int], sketch: Sketch) -> bool:
        """Whether one of these traced values has the shape of the sketch, dims of 1 left out."""
        shape = squeezed_shape(sketch)
        return any(squeezed_shape(self.options[place].sketch) == shape for place in places)

    def _find_reordered(
        self,
        sketch: Sketch,
        gaps: Array,
        *,
        same_shape: bool,
    ) -> int | None:
        """The last traced value with the same elements in another order.

        Sorting is expensive, and two tensors of the same elements have the same rms: only those are sorted.
        """
        shape = squeezed_shape(sketch)
        largest_rms = np.maximum(self.pool.rms, sketch.rms)
        same_rms = np.abs(self.pool.rms - sketch.rms) <= 4 * self.tolerance * largest_rms
        for place in reversed(np.flatnonzero(same_rms & (gaps > self.tolerance)).tolist()):
            option = self.options[place].sketch
            if (squeezed_shape(option) == shape) is not same_shape:
                continue
            if distance(sketch, option, any_order=True) <= self.tolerance:
                return int(place)
        return None


def squeezed_shape(sketch: Sketch) -> tuple[int, ...]:
    """The shape without dims of 1."""
    return tuple(n for n in sketch.shape if n != 1)


def merges_heads(traced: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether the second shape is the first with its heads (the second axis) beside each other at the end: as fused attention has them."""
    if len(traced) != 4 or len(shape) != 3:
        return False
    batch, heads, length, size = traced
    return tuple(shape) == (batch, length, heads * size)
