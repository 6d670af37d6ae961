"""How the operations of a run round: each one's error, measured against float64, and its result with another error of that size.

1. `measure`: by element, how far the result is from the float64 one, and the standard deviation of the errors that a correct kernel may make.
2. `Rounding.apply`: the result with an error drawn anew.
3. `RoundingErrors`: what was measured in one run. Further runs on the same inputs draw from it, and need no float64.

In passes of the module, on one thread: a first re-run of four layers of BERT-base at 128 tokens takes 5.6, each further one 1.1 (`python -m bench.scale.reruns`).
"""

import math
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

_PIECE = 1 << 16
"""Elements that are worked on at once: what is computed on the way needs no fresh memory then. An element takes 4.1 ns to measure and 0.7 to
apply; 10.6 and 3.5 with pieces of 1 << 12, for Python's sake."""
_TABLE = 1 << 18
"""Normal numbers that are drawn once; every piece takes a window of them, at random and with a random sign. Drawing an element anew takes 2.3 ns,
three times as long as all else in a further re-run."""
_MOST_BYTES = 128 << 20
"""What a run may remember; four layers of BERT-base at 128 tokens take 34 MB. What comes after it is measured again each time. Not measured otherwise."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """The error of one result, by element; bfloat16 is exact enough for an error."""

    offset: Tensor
    """The float64 result minus the rounded one."""
    size: Tensor
    """The standard deviation of an error; 0 where the result is exact."""

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return self.offset.nbytes + self.size.nbytes

    def apply(self, narrow: Tensor, noise: "Noise") -> Tensor:
        """The float64 result with a random error, in the dtype of the rounded one."""
        flat = narrow.reshape(-1)
        result = torch.empty_like(flat)
        for start in range(0, flat.numel(), _PIECE):
            here = slice(start, start + _PIECE)
            error = noise.draw(self.size[here].float()).add_(self.offset[here])
            torch.add(flat[here], error, out=result[here])
        return result.reshape(narrow.shape)


class Noise:
    """Random errors of one run; the same seed gives the same ones."""

    def __init__(self, seed: int, amplitude: float) -> None:
        self._random = random.Random(seed)
        self._amplitude = amplitude

    def draw(self, size: Tensor) -> Tensor:
        """Normal errors with these standard deviations times the amplitude, written over them."""
        count = size.numel()
        start = self._random.randrange(_TABLE - count + 1)
        sign = self._random.choice((-1.0, 1.0))
        return size.mul_(_normal_numbers()[start : start + count]).mul_(sign * self._amplitude)


@cache
def _normal_numbers() -> Tensor:
    return torch.randn(_TABLE, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What is known of a result beside its float64 value."""

    naive: Tensor | None = None
    """The result of the simplest correct kernel, whose error counts as well."""
    scale: Tensor | None = None
    """What the error is relative to, where that is not the result; it broadcasts to it."""
    exact_by_luck: bool = False
    """Whether another order of the same arithmetic may round where this one happens to be exact."""
    bends_at_zero: bool = False
    """Whether float64 itself rounds a tiny input to the result: ONNX Runtime's polynomial for tanh is off by 9e-8 of it. At 1 the function ends, and is exact."""
    misses_one: bool = False
    """Whether it does not end at 1 exactly: the tanh inside of ONNX Runtime's GRU is 1 + 8 * 2**-24 for all inputs beyond 10."""
    typical: bool = False
    """Whether one element may be right by luck, so that the typical error of the tensor counts too."""


def measure(narrow: Tensor, wide: Tensor, known: Measurement) -> Rounding | None:
    """The error of a result in its own precision; None where it is exact."""
    flat, flat_wide = narrow.reshape(-1), wide.reshape(-1)
    naive, scale = known.naive, known.scale
    if naive is not None:
        naive = naive.reshape(-1) if naive.shape == wide.shape else None
    if scale is not None:
        scale = scale.expand(narrow.shape).reshape(-1)
    offset = torch.empty(flat.shape, dtype=torch.bfloat16)
    size = torch.empty(flat.shape, dtype=torch.bfloat16)
    typical = _typical_error(flat, flat_wide, naive) if known.typical else 0.0
    inexact = False
    for start in range(0, flat.numel(), _PIECE):
        here = slice(start, start + _PIECE)
        piece_offset, piece_size = _measure_piece(
            flat[here],
            flat_wide[here].double(),
            known,
            naive=None if naive is None else naive[here],
            scale=None if scale is None else scale[here],
            typical=typical,
        )
        offset[here], size[here] = piece_offset, piece_size
        inexact = inexact or bool(piece_size.any())
    return Rounding(offset, size) if inexact else None


def _typical_error(narrow: Tensor, wide: Tensor, naive: Tensor | None) -> float:
    """The rms of the errors that are finite."""
    total = 0.0
    for start in range(0, narrow.numel(), _PIECE):
        here = slice(start, start + _PIECE)
        piece = None if naive is None else naive[here]
        total += float(_errors(narrow[here], wide[here].double(), piece)[1].square().sum())
    return float((total / narrow.numel()) ** 0.5)


def _errors(narrow: Tensor, wide: Tensor, naive: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The float64 result minus the rounded one, the size of the error (0 where it is not finite), and where it is finite. An error needs no float64 itself."""
    offset = (wide - narrow).float()
    error = offset.abs()
    if naive is not None:
        error = torch.maximum(error, (naive - wide).float().abs_())
    # The largest number of a dtype was put there on purpose.
    finite = (narrow.abs() < torch.finfo(narrow.dtype).max).logical_and_(error < math.inf)
    return offset, error.masked_fill_(~finite, 0.0), finite


def _measure_piece(
    narrow: Tensor,
    wide: Tensor,
    known: Measurement,
    *,
    naive: Tensor | None,
    scale: Tensor | None,
    typical: float,
) -> tuple[Tensor, Tensor]:
    """Offset and size of the errors; both are 0 where the result is exact or not finite."""
    offset, error, finite = _errors(narrow, wide, naive)
    half_ulp = torch.finfo(narrow.dtype).eps / 2
    inexact = error > 0
    size = torch.maximum(error, narrow.abs().float().mul_(half_ulp))
    if scale is not None:
        size = torch.maximum(size, scale.float() * half_ulp)
        if known.exact_by_luck:
            inexact |= scale > 0
        if known.bends_at_zero:
            inexact |= (wide != 0) & (wide.abs() < 0.5)
        if known.misses_one:
            inexact |= wide.abs() >= 0.5
    if typical:
        size.clamp_(min=typical)
    left_alone = ~inexact.logical_and_(finite)
    return offset.masked_fill_(left_alone, 0.0), size.masked_fill_(left_alone, 0.0)


class RoundingErrors:
    """The errors of every operation of one run, in their order, as far as the memory for it goes."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, tuple[Rounding | None, ...]]] = {}
        self.nbytes = 0
        """Bytes of all errors so far, also of those that were too many to keep."""

    def keep(self, place: int, operation: Any, roundings: tuple[Rounding | None, ...]) -> None:
        """Remember the errors of the results of the operation at this place in the run."""
        self.nbytes += sum(one.nbytes for one in roundings if one is not None)
        if self.nbytes <= _MOST_BYTES:
            self._known[place] = (operation, roundings)

    def find(
        self, place: int, operation: Any, results: tuple[Any, ...], *, moved: bool
    ) -> tuple[Rounding | None, ...] | None:
        """The errors of this operation; None where another one, or one of another size, stood there.

        What was exact need not be once the inputs moved: then it is measured anew.
        """
        known, roundings = self._known.get(place, (None, ()))
        if known is not operation or len(roundings) != len(results):
            return None
        if moved and all(one is None for one in roundings):
            return None
        for result, rounding in zip(results, roundings, strict=True):
            if rounding is not None and result.numel() != rounding.size.numel():
                return None
        return roundings
