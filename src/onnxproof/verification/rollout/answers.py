"""The answers and states of all sides to one call, and what is between them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.numerics.measure import GapLabel, Noise, is_float, measure, noise_of, pool
from onnxproof.options import Policy
from onnxproof.results import Gap, NoiseKind, Verdict
from onnxproof.results.judging import judge_gap

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """One answer of all sides at the places that are real."""

    reference: Array
    truth: Array | None
    samples: Sequence[Array]
    candidate: Array | None

    def noise(self, kind: NoiseKind) -> Noise:
        """The noise of this very call, from the truth and from every other rounding."""
        target = self.reference if self.truth is None else self.truth
        noises = []
        if self.truth is not None:
            noises.append(noise_of(self.reference, self.truth, kind))
        else:
            kind = NoiseKind.PERTURBED
        for sample in self.samples:
            if sample.shape == target.shape:
                noises.append(noise_of(sample, target, kind))
        if not noises:
            return Noise(kind=kind)
        return pool(noises)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The answers of all sides to one call."""

    reference: Arrays
    truth: Arrays
    samples: Sequence[Arrays]
    candidate: Arrays

    def of(self, name: str, real: Array) -> Values:
        """One of them, without what stands at padded places."""
        reference = self.reference[name]
        truth = self.truth.get(name)
        candidate = self.candidate.get(name)
        samples = [sample[name] for sample in self.samples if name in sample]
        keep = None
        if not real.all() and reference.shape[:2] == real.shape:
            keep = real
        values = Values(
            reference=select(reference, keep),
            truth=None if truth is None else select(truth, keep),
            samples=[select(sample, keep) for sample in samples],
            candidate=None if candidate is None else select(candidate, keep),
        )
        return replace(values, truth=_believed(values))


def select(array: Array, keep: Array | None) -> Array:
    """What stands at the places that are kept, where the array has these places."""
    if keep is None or array.shape[:2] != keep.shape:
        return array
    return array[keep]


def _believed(values: Values) -> Array | None:
    """The truth, unless it is not finite where the reference is: an attention that is fixed in float32 gives NaN there."""
    truth, reference = values.truth, values.reference
    if truth is None or truth.shape != reference.shape:
        return None
    if is_float(reference) and (np.isfinite(reference) & ~np.isfinite(truth)).any():
        return None
    return truth


def measured_by_quality(gap: Gap, allowed_db: float, policy: Policy) -> Gap:
    """A quantized answer: in units of the error that its quality limit allows."""
    level = 10 ** (-allowed_db / 20) * gap.scale / policy.runtime_limit
    ratio = gap.rms / level if level else float("inf") * bool(gap.rms)
    return replace(
        gap, noise=level, noise_ratio=ratio, worst_ratio=0.0, noise_kind=NoiseKind.SIMULATED
    )


def is_bad(gap: Gap, policy: Policy) -> bool:
    """Whether a gap would decide a verdict."""
    return judge_gap(gap, policy) in (Verdict.DRIFT, Verdict.DIVERGED, Verdict.ERROR)


def is_other(own: Array, truth: Array | None, other: Array, policy: Policy) -> bool:
    """Whether a state is another than the reference's, beyond rounding."""
    if own.shape != other.shape or own.dtype != other.dtype:
        return True
    if not own.size:
        return False
    if truth is not None and truth.shape != own.shape:
        truth = None
    kind = NoiseKind.PERTURBED if truth is None else NoiseKind.DOUBLE
    noise = Noise(kind=kind)
    if truth is not None:
        noise = noise_of(own, truth, kind)
    gap = measure(
        GapLabel(),
        reference=own,
        truth=truth,
        candidate=other,
        noise=noise,
        atol=policy.atol,
        rtol=policy.rtol,
    )
    if truth is None:  # without a noise of its own, only what no tolerance allows
        return judge_gap(gap, policy) is Verdict.DIVERGED
    return is_bad(gap, policy)
