"""Sums and maxima over the elements of a float output, collected piece by piece."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.numerics.pieces import dot, peak
from onnxproof.results.gaps import RTOL_GRID

Array = np.ndarray[Any, Any]


@dataclass(slots=True, kw_only=True)
class FloatTotals:
    """What is known of the elements so far; those that are not finite on every side count in `lost` and `odd` alone."""

    step: float
    """The spacing of the reference's dtype at 1."""
    tiny: float
    """Its smallest normal number."""
    atol: float
    rtol: float
    count: int = 0
    lost: int = 0
    """Elements where the reference is finite and the candidate is not."""
    odd: int = 0
    """Elements where the reference is not finite and the candidate is something else."""
    error_power: float = 0.0
    """Of the candidate against the truth."""
    truth_power: float = 0.0
    candidate_power: float = 0.0
    product: float = 0.0
    """Of candidate and truth."""
    peak: float = 0.0
    """The largest error against the truth, and its flat index."""
    peak_place: int = 0
    max_abs: float = 0.0
    """From here on the candidate against the reference."""
    max_rel: float = 0.0
    ulps: float = 0.0
    allowance: float = 0.0
    atol_needed: Array = field(default_factory=lambda: np.zeros(len(RTOL_GRID)))
    _start: int = 0

    def add(
        self,
        reference: Array,
        truth: Array,
        candidate: Array,
    ) -> None:
        """Add the next piece."""
        usable = np.isfinite(reference) & np.isfinite(truth) & np.isfinite(candidate)
        if not usable.all():
            self._count_non_finite(reference, candidate)
            reference = np.where(usable, reference, 0.0)
            truth = np.where(usable, truth, 0.0)
            candidate = np.where(usable, candidate, 0.0)
        self.count += int(usable.sum())
        error = candidate - truth
        self.error_power += dot(error, error)
        self.truth_power += dot(truth, truth)
        self.product += dot(candidate, truth)
        self.candidate_power += dot(candidate, candidate)
        largest = peak(error)
        if largest > self.peak:
            self.peak = largest
            self.peak_place = self._start + int(np.argmax(np.abs(error)))
        self._add_difference(np.abs(candidate - reference), np.abs(reference))
        self._start += reference.size

    def _count_non_finite(self, reference: Array, candidate: Array) -> None:
        """Count elements that one side has as NaN or infinity and the other has not."""
        is_finite = np.isfinite(reference)
        same = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate))
        self.lost += int((is_finite & ~np.isfinite(candidate)).sum())
        self.odd += int((~is_finite & ~same).sum())

    def _add_difference(self, difference: Array, size: Array) -> None:
        """The largest differences from the reference, absolute and in several units."""
        if not difference.any():
            return
        relative = difference / np.maximum(size, self.tiny)
        in_ulps = difference / np.maximum(size * self.step, self.tiny)
        allowed = difference / (self.atol + self.rtol * size)
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.max_rel = max(self.max_rel, float(relative.max()))
        self.ulps = max(self.ulps, float(in_ulps.max()))
        self.allowance = max(self.allowance, float(allowed.max()))
        needed = [float((difference - rtol * size).max()) for rtol in RTOL_GRID]
        self.atol_needed = np.maximum(self.atol_needed, needed)
