"""The reference's side of one case: its answer, the truth, and its noise as far as it is known.

1. `estimate`: the noise is the distance of the reference from the truth; an output without a truth gets it from re-runs.
2. `confirm`: the reference is re-run with every operation rounded anew, and each re-run is a sample of the noise.
3. `measure_flips`: louder re-runs ask whether a decision inside the model flips; their noise counts only if one does.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxproof.numerics.measure import Noise, is_float, largest, noise_of, noise_of_reruns, pool
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, NoiseKind
from onnxproof.verification.detections import CaseRows
from onnxproof.verification.quantized import Simulated

Array = np.ndarray[Any, Any]
RERUNS = 4
"""Re-runs that confirm a case (not measured)."""
_LOUD_AMPLITUDES = (4.0, 4.0, 8.0, 8.0, 8.0, 16.0)
"""Amplitudes of the re-runs which ask whether a decision flips (not measured)."""
TIE_RULES = ("first", "last")
LOUD_RERUNS = len(_LOUD_AMPLITUDES)
_FLIP_GROWTH = 4.0
"""Noise that grows this much faster than the amplitude says that a decision flipped (not measured)."""
_BEYOND_DTYPE = 1.05
"""Times the largest number of a dtype: farther out, rounding can no longer decide whether a value is finite (not measured)."""
_HALF_NOISE_LIMIT = 0.05
"""Of an output's size: what half precision may cost a module. Where a sum overflows in half, the module in half has lost its answer, and a file that keeps
that sum in float32 has not: its own loss is no noise. Twelve times this is 0.6 of the output."""
_WORST_TO_RMS = 4.0
"""The worst element may be this many times the limit of the rms (not measured)."""


class ReferenceRefused(Exception):
    """The reference itself does not take this case."""


class CaseReference:
    """What the reference answers to one case, and how far that is from the truth."""

    def __init__(
        self,
        model: Reference,
        case: Case,
        reference: list[Array],
        truth: Sequence[Array | None],
        *,
        seed: int,
        half: str | None,
        part: tuple[int, Array] | None = None,
    ) -> None:
        self._reference = model
        self.case = case
        self.reference = reference
        self.truth = list(truth)
        self.kind = model.kind
        self._seed = seed
        self._half = half
        """The half precision of the candidate's file; the cost of that precision is noise."""
        self._part = part
        """The output of which only some values are compared, and a mask of these values; None compares all."""
        self._noises: list[list[Noise]] = [[] for _ in reference]
        self._lost = [False] * len(reference)
        self._reruns = 0
        self._other_path: set[int] = set()
        """Outputs without a truth whose re-runs agree on another answer than the reference: they took another path, and flip nothing."""
        self.seconds = 0.0
        """How long the reference took for it."""
        self.simulated: Simulated | None = None
        """What a quantized candidate's graph says by itself."""
        self.rows: CaseRows | None = None
        """The rows of a detector: every re-run is put into their order."""

    def select(self, place: int, keep: Array) -> "CaseReference":
        """The same for some values of one output only; its noise is not estimated yet."""
        reference = list(self.reference)
        reference[place] = reference[place][keep]
        truth = list(self.truth)
        whole_truth = truth[place]
        if whole_truth is not None:
            truth[place] = whole_truth[keep]
        part = CaseReference(
            self._reference,
            self.case,
            reference,
            truth,
            seed=self._seed,
            half=self._half,
            part=(place, keep),
        )
        part.rows = self.rows
        return part

    def fork(self) -> "CaseReference":
        """The same, whose noise can be measured further without changing this one."""
        fork = copy.copy(self)
        fork._noises = [list(noises) for noises in self._noises]
        fork._lost = list(self._lost)
        fork._other_path = set(self._other_path)
        return fork

    def estimate(self) -> None:
        """Measure the noise once: reference against truth, re-runs where there is no truth, and what half precision costs."""
        for place, (reference, truth) in enumerate(zip(self.reference, self.truth, strict=True)):
            if truth is None or truth.shape != reference.shape:
                self.truth[place] = None
                continue
            truth = _limit_to_dtype(truth, reference)
            self.truth[place] = truth
            self._noises[place].append(noise_of(reference, truth, self._reference.kind))
        if any(truth is None for truth in self.truth):
            self.confirm()
        if self._half is not None and self._differs_in_precision(self._half):
            in_half = self._reference.in_precision(self.case.inputs, self._half)
            self._add_samples(in_half or [], limit=_HALF_NOISE_LIMIT)

    def noise(self, place: int) -> Noise:
        """The noise of one output, from every sample so far."""
        return pool(self._noises[place])

    def confirm(self, count: int = RERUNS) -> None:
        """Re-run the reference with fresh rounding; once a case is enough."""
        if self._reruns:
            return
        without_truth = [
            place
            for place, truth in enumerate(self.truth)
            if truth is None and is_float(self.reference[place])
        ]
        answers: dict[int, list[Array]] = {place: [] for place in without_truth}
        for outputs in self._rerun(count, amplitude=1.0):
            self._add_samples(outputs)
            for place in without_truth:
                answers[place].append(outputs[place])
        for place in without_truth:
            steady = noise_of_reruns(self._noises[place], answers[place], self.reference[place])
            if steady != self._noises[place]:
                self._other_path.add(place)
            self._noises[place] = steady

    def ask_louder(self) -> None:
        """Re-run it with more and more rounding, and with ties broken otherwise, for what its rows are then; its noise stays as it is."""
        self.confirm()
        for amplitude in _LOUD_AMPLITUDES:
            for _ in self._rerun(1, amplitude=amplitude):
                pass
        for rule in TIE_RULES:
            answers = self.with_ties_broken(rule)
            if answers is not None and self.rows is not None:
                self.rows.align(answers)

    def with_ties_broken(self, rule: str, *, wide: bool = False) -> list[Array] | None:
        """Its answer with exact ties broken by a rule, a detector's rows in the order of the rule; None where that can't be done."""
        return self._reference.ties(self.case.inputs, rule, wide=wide)

    @property
    def confirmed(self) -> bool:
        """Whether the reference was re-run."""
        return self._reruns > 0

    def measure_flips(self, place: int) -> bool:
        """Whether a decision inside the model flips in louder and louder re-runs; if one does, their noise counts from now on."""
        if place in self._other_path:
            return False
        quiet = self.noise(place)
        target = self._target(place)
        flipped = False
        for amplitude in _LOUD_AMPLITUDES:
            for outputs in self._rerun(1, amplitude=amplitude):
                output = self._select_part(outputs)[place]
                if output.shape != target.shape:
                    continue
                noise = noise_of(output, target, quiet.kind)
                if noise.rms > _FLIP_GROWTH * amplitude * quiet.rms or noise.flips > 0:
                    self._noises[place].append(noise)
                    flipped = True
        return flipped

    def all_finite(self) -> bool:
        """True when the reference absorbed whatever was odd about the input: then the candidate must too."""
        return all(_is_finite(output) for output in self.reference)

    def undecided_infinities(self, place: int) -> bool:
        """True when a re-run, or the truth, is not finite where the reference happens to be."""
        truth = self.truth[place]
        reference = self.reference[place]
        if truth is not None and is_float(reference):
            rounded_truth = truth.astype(reference.dtype).astype(np.float64)
            finite = np.isfinite(reference.astype(np.float64))
            if (finite & ~np.isfinite(rounded_truth)).any():
                return True
        return self._lost[place]

    def _differs_in_precision(self, half: str) -> bool:
        return any(str(output.dtype) != half for output in self.reference if is_float(output))

    def _target(self, place: int) -> Array:
        """What another run is compared with: the truth, or the reference where there is none."""
        truth = self.truth[place]
        if truth is None:
            return self.reference[place]
        return truth

    def _select_part(self, outputs: Sequence[Array]) -> list[Array]:
        """The outputs of another run, without the values that are not compared."""
        selected = list(outputs)
        if self._part is not None:
            place, keep = self._part
            if selected[place].shape == keep.shape:
                selected[place] = selected[place][keep]
        return selected

    def _add_samples(
        self,
        outputs: Sequence[Array],
        limit: float = math.inf,
    ) -> None:
        """Take another run of the reference as a sample of its noise, of which no more than `limit` times the output's size counts."""
        if not outputs:
            return
        for place, output in enumerate(self._select_part(outputs)):
            target = self._target(place)
            if output.shape != target.shape:
                continue
            kind = NoiseKind.PERTURBED if self.truth[place] is None else self._reference.kind
            noise = noise_of(output, target, kind)
            self._noises[place].append(_limit_noise(noise, target, limit))
            if _loses_numbers(self.reference[place], output):
                self._lost[place] = True

    def _rerun(self, count: int, *, amplitude: float) -> Iterator[list[Array]]:
        """Re-runs with fresh rounding; every second one also moves the inputs by an ulp, unless their very values are the point of the case."""
        may_move = not self.case.exact and self.case.domain is None
        for index in range(count):
            self._reruns += 1
            move = may_move and index % 2 == 1
            try:
                outputs = self._reference.rerun(
                    self.case.inputs, self._seed + self._reruns, amplitude=amplitude, move=move
                )
            except Exception:  # noqa: S112 - a re-run that the module refuses is one sample less, and the count shows it
                continue
            if len(outputs) != len(self.reference):
                continue
            if self.rows is not None:
                outputs = self.rows.align(outputs)
            yield outputs


def _limit_to_dtype(truth: Array, reference: Array) -> Array:
    """The truth, but the reference's own value where it stays finite and the truth is far beyond what its dtype holds: the module sees to that (`nan_to_num`, a clamp)."""
    if not is_float(reference):
        return truth
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(truth) > _BEYOND_DTYPE * largest(reference.dtype)
    if not far.any():
        return truth
    far &= np.isfinite(truth) & np.isfinite(reference.astype(np.float64, copy=False))
    if not far.any():
        return truth
    return np.where(far, reference, truth)


def _limit_noise(noise: Noise, target: Array, share: float) -> Noise:
    """The noise, at most this share of the size of what it is measured against."""
    if share == math.inf or not is_float(target):
        return noise
    finite = target[np.isfinite(target)].astype(np.float64)
    limit = math.inf
    if finite.size:
        limit = share * float(np.sqrt(np.mean(np.square(finite))))
    rms = min(noise.rms, limit)
    worst = min(noise.worst, _WORST_TO_RMS * limit)
    return replace(noise, rms=rms, worst=worst)


def _loses_numbers(reference: Array, output: Array) -> bool:
    """True when a re-run is not finite where the reference is."""
    if not is_float(output) or output.shape != reference.shape:
        return False
    finite = np.isfinite(reference.astype(np.float64))
    return bool((finite & ~np.isfinite(output.astype(np.float64))).any())


def _is_finite(array: Array) -> bool:
    if array.dtype.kind == "c":
        return bool(np.isfinite(array).all())
    return not is_float(array) or bool(np.isfinite(array.astype(np.float64)).all())
