"""Measure gaps between reference, truth and candidate. Measuring never decides: `judge` does, later, from these numbers.

Nothing is broadcast, nothing is rounded to agree, and arrays are walked in pieces so that no float64 copy of a whole
tensor is made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from onnxproof.numerics.embeddings import is_embedding, retrieval
from onnxproof.numerics.float_totals import FloatTotals
from onnxproof.numerics.pieces import dot, finite, peak, pieces, root_mean
from onnxproof.results import Gap, NoiseKind, Status

Array = np.ndarray[Any, Any]
FLOOR = 0.25
"""Noise is never taken below this share of an ulp at the output's own scale: a reference may be exact by luck."""
FLOOR_DOUBLE = 2.0
"""For float64 modules there is no wider truth: reference and truth are the same run, and the floor is all there is."""
_OTHER_PATH = 16.0
"""Times the spread of re-runs among themselves: farther from the reference than this, all of them took another path. Not measured."""
_MOST_CLASSES = 4096
"""A last axis of 2 to so many elements may hold scores of classes. Not measured."""
_MOST_SCORES = 1 << 16
"""Elements of an output beyond which orders are not compared, since sorting costs more than all the rest."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Noise:
    """How far the reference itself is from the truth: rms, worst element, and for integers the count that flips."""

    rms: float = 0.0
    worst: float = 0.0
    flips: float = 0.0
    unstable: Array | None = None
    """Elements (flat) of an integer output which the reference does not decide."""
    kind: NoiseKind = NoiseKind.NONE
    members: int = 0


def is_float(array: Array) -> bool:
    """True for every real float dtype, those of 4 and 8 bits and bfloat16 included."""
    return is_float_dtype(array.dtype)


def is_float_dtype(dtype: np.dtype[Any]) -> bool:
    """The same of a dtype."""
    return dtype.kind == "f" or "float" in dtype.name


def eps(dtype: np.dtype[Any]) -> float:
    """The spacing of numbers at 1 in that dtype; 0 for integers."""
    if not is_float_dtype(dtype):
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps)


def smallest(dtype: np.dtype[Any]) -> float:
    """The smallest number of full precision in a float dtype: below it, numbers lose their digits or become 0."""
    return float(ml_dtypes.finfo(dtype).smallest_normal)


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).max)


def noise_of(
    reference: Array,
    truth: Array | None,
    kind: NoiseKind,
) -> Noise:
    """The noise of one output of one case, from one comparison of the reference with the truth."""
    if truth is None or truth.shape != reference.shape:
        return Noise(kind=kind)
    if reference.dtype.kind == "c":
        reference, truth = as_real(reference), as_real(truth)
    if not is_float(reference):
        unstable = (reference != truth).reshape(-1)
        return Noise(
            flips=float(unstable.sum()),
            unstable=unstable,
            kind=NoiseKind.EXACT,
            members=1,
        )
    power = 0.0
    worst = 0.0
    count = 0
    for r, t in pieces(reference, truth):
        difference = finite(r - t)
        power += dot(difference, difference)
        count += difference.size
        worst = max(worst, peak(difference))
    return Noise(
        rms=root_mean(power, count),
        worst=worst,
        kind=kind,
        members=1,
    )


def pool(noises: Sequence[Noise]) -> Noise:
    """One noise from several: the rms of all, the worst of all, the union of what is not decided."""
    if not noises:
        return Noise()
    masks = [n.unstable for n in noises if n.unstable is not None]
    union = None
    if masks:
        union = np.logical_or.reduce(masks)
    return Noise(
        rms=math.sqrt(sum(n.rms**2 for n in noises) / len(noises)),
        worst=max(n.worst for n in noises),
        flips=sum(n.flips for n in noises) / len(noises),
        unstable=union,
        kind=noises[0].kind,
        members=sum(n.members for n in noises),
    )


def noise_of_reruns(
    noises: Sequence[Noise],
    samples: Sequence[Array],
    reference: Array,
) -> list[Noise]:
    """The noise of re-runs without a truth, but their spread among themselves where they agree on another answer than the reference.

    A recorded pass may take another path than a plain one (fused kernels, nested tensors): that is no rounding, and would let anything pass.
    """
    alike = [sample for sample in samples if sample.shape == reference.shape]
    if len(alike) < 2:
        return list(noises)
    first = alike[0].astype(np.float64)
    spread = [noise_of(sample, first, NoiseKind.PERTURBED) for sample in alike[1:]]
    values = finite(reference.astype(np.float64))
    floor = 0.0
    if values.size:
        scale = math.sqrt(float(np.mean(np.square(values))))
        floor = FLOOR * eps(reference.dtype) * scale
    if pool(noises).rms > _OTHER_PATH * max(pool(spread).rms, floor):
        return spread
    return list(noises)


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class GapLabel:
    """Which output is measured: of which case, on which backend."""

    case: str = ""
    group: str = ""
    backend: str = ""
    output: str = ""


def measure(
    label: GapLabel,
    *,
    reference: Array,
    truth: Array | None,
    candidate: Array | None,
    noise: Noise,
    floor_scale: float = 0.0,
    atol: float = 1e-4,
    rtol: float = 1e-3,
) -> Gap:
    """The gap of one output: `truth` is the float64 answer, or None where only `noise` (from re-runs) is known."""
    status, detail = _compare_kinds(reference, candidate)
    gap = Gap(
        case=label.case,
        group=label.group,
        backend=label.backend,
        output=label.output,
        status=status,
        detail=detail,
    )
    if candidate is None or status is Status.SHAPE or reference.size == 0:
        return gap
    if not is_float(reference) and reference.dtype.kind != "c":
        return replace(gap, **_measure_exact(reference, candidate, noise))
    if truth is None:
        truth = reference
    if reference.dtype.kind == "c":
        reference, truth, candidate = as_real(reference), as_real(truth), as_real(candidate)
    if truth.shape != reference.shape:
        truth = reference
    totals = _totals(reference, truth, candidate, atol, rtol)
    return replace(
        gap,
        **_measure_floats(reference, totals, noise, floor_scale),
        **_decisions(reference, candidate),
    )


def _compare_kinds(reference: Array, candidate: Array | None) -> tuple[Status, str]:
    """What can be said without looking at a value; an output of another dtype is still compared."""
    if candidate is None:
        return Status.MISSING, "the candidate has no such output"
    if candidate.shape != reference.shape:
        shapes = f"reference {list(reference.shape)}, candidate {list(candidate.shape)}"
        return Status.SHAPE, shapes
    if candidate.dtype != reference.dtype:
        return Status.DTYPE, f"reference {reference.dtype}, candidate {candidate.dtype}"
    if reference.size == 0:
        return Status.EMPTY, "nothing to compare: the output is empty"
    return Status.COMPARED, ""


def pair(one: Array, other: Array | None) -> Gap:
    """Two answers to one question beside each other: no truth, no noise, no name."""
    return measure(
        GapLabel(),
        reference=one,
        truth=None,
        candidate=other,
        noise=Noise(),
    )


def _measure_exact(
    reference: Array,
    candidate: Array,
    noise: Noise,
) -> dict[str, Any]:
    """Integers and booleans: no subtraction before the comparison, so 2**53 + 1 is not 2**53."""
    differ = (reference != candidate).reshape(-1)
    mismatches = int(differ.sum())
    undecided = 0
    if noise.unstable is not None and noise.unstable.shape == differ.shape:
        undecided = int((differ & noise.unstable).sum())
    ratio = _ratio(mismatches, noise.flips)
    measured = {
        "compared": reference.size,
        "noise_kind": NoiseKind.EXACT,
        "noise": noise.flips,
        "noise_ratio": ratio,
        "worst_ratio": ratio,
        "mismatches": mismatches,
        "unstable": undecided,
        "scale": float(np.abs(reference.astype(np.float64)).max()),
    }
    if not mismatches:
        return measured
    difference = np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
    return measured | {
        "max_abs": float(difference.max()),
        "rms": float(np.sqrt(np.mean(difference**2))),
        "worst": _index(int(np.argmax(differ)), reference.shape),
        "allowance": math.inf,
    }


def _totals(
    reference: Array,
    truth: Array,
    candidate: Array,
    atol: float,
    rtol: float,
) -> FloatTotals:
    """The sums and maxima over all elements."""
    totals = FloatTotals(
        step=eps(reference.dtype),
        tiny=float(ml_dtypes.finfo(reference.dtype).tiny),
        atol=atol,
        rtol=rtol,
    )
    for r, t, c in pieces(reference, truth, candidate):
        totals.add(r, t, c)
    return totals


def _measure_floats(
    reference: Array,
    totals: FloatTotals,
    noise: Noise,
    floor_scale: float,
) -> dict[str, Any]:
    """The error against the truth in units of the noise, which has a floor."""
    scale = root_mean(totals.truth_power, totals.count)
    rms = root_mean(totals.error_power, totals.count)
    level = max(noise.rms, _noise_floor(totals, max(scale, floor_scale)))
    worst_level = max(noise.worst, 2.0 * level)
    worst = None
    if totals.peak:
        worst = _index(totals.peak_place, reference.shape)
    return {
        "compared": totals.count,
        "scale": scale,
        "max_abs": totals.max_abs,
        "max_rel": totals.max_rel,
        "rms": rms,
        "ulps": totals.ulps,
        "cosine": _cosine(totals),
        "allowance": totals.allowance,
        "atol_needed": tuple(float(v) for v in totals.atol_needed),
        "noise": level,
        "noise_kind": noise.kind,
        "lost": totals.lost,
        "odd": totals.odd,
        "noise_ratio": _ratio(rms, level),
        "worst_ratio": _ratio(totals.peak, worst_level),
        "worst": worst,
        "sqnr_db": _decibels(scale, rms),
    }


def _noise_floor(totals: FloatTotals, scale: float) -> float:
    """A share of an ulp at this scale, and never below the smallest number that there is."""
    share = FLOOR if totals.step > 1e-15 else FLOOR_DOUBLE
    return max(share * totals.step * scale, totals.tiny * totals.step)


def _ratio(value: float, level: float) -> float:
    """In units of a level; beyond any where the level is 0."""
    if level:
        return value / level
    return math.inf if value else 0.0


def _cosine(totals: FloatTotals) -> float:
    """The cosine of candidate and truth; 1 where both are 0."""
    if not totals.truth_power or not totals.candidate_power:
        return float(totals.truth_power == totals.candidate_power)
    return totals.product / math.sqrt(totals.truth_power * totals.candidate_power)


def _decibels(scale: float, rms: float) -> float:
    """The ratio of signal to error in decibels."""
    if not rms or not scale:
        return math.inf
    # not of the quotient, which vanishes where an error of 1e300 meets a signal of 1e-30
    return 20 * (math.log10(scale) - math.log10(rms))


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of a flat place."""
    return tuple(int(i) for i in np.unravel_index(place, shape))


def _decisions(reference: Array, candidate: Array) -> dict[str, Any]:
    """Agreement of the best class, and of the whole order, where the last axis looks like scores; of embeddings, of nearest neighbours."""
    if reference.ndim < 2 or not 2 <= reference.shape[-1] <= _MOST_CLASSES:
        return {}
    if reference.size > _MOST_SCORES:
        return {}
    classes = reference.shape[-1]
    r = reference.astype(np.float64).reshape(-1, classes)
    c = candidate.astype(np.float64).reshape(-1, classes)
    if not (np.isfinite(r).all() and np.isfinite(c).all()):
        return {}
    if is_embedding(reference):
        return {"retrieval": retrieval(r, c)}
    same_order = r.argsort(-1, kind="stable") == c.argsort(-1, kind="stable")
    same_best = r.argmax(-1) == c.argmax(-1)
    return {"top1": float(same_best.mean()), "rank": float(same_order.mean())}


def as_real(array: Array) -> Array:
    """Complex numbers as exporters write them: a last dim of the real and the imaginary part; anything else as it is."""
    if array.dtype.kind != "c":
        return array
    return np.stack([array.real, array.imag], axis=-1)
