"""Measure gaps between reference, truth and candidate. Measuring never decides: `judge` does, later, from these numbers.

Nothing is broadcast, nothing is rounded to agree, and arrays are walked in pieces so that no float64 copy of a whole
tensor is made.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from onnxproof.results import Gap, NoiseKind, Status
from onnxproof.results.gaps import RTOL_GRID

Array = np.ndarray[Any, Any]
FLOOR = 0.25
"""Noise is never taken below this share of an ulp at the output's own scale: a reference may be exact by luck."""
FLOOR_DOUBLE = 2.0
"""For float64 modules there is no wider truth: reference and truth are the same run, and the floor is all there is."""
_OTHERWISE = 16.0
"""Times the spread of re-runs among themselves: farther from the reference than this, all of them took another path."""
_PIECE = 1 << 16
_LARGEST_SCORES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """True for every real float dtype, bfloat16 included."""
    return bool(array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16)


def eps(dtype: np.dtype[Any]) -> float:
    """The spacing of numbers at 1 in that dtype; 0 for integers."""
    return (
        float(ml_dtypes.finfo(dtype).eps)
        if dtype.kind == "f" or dtype == ml_dtypes.bfloat16
        else 0.0
    )


def largest(dtype: np.dtype[Any]) -> float:
    """The largest finite number of a float dtype."""
    return float(ml_dtypes.finfo(dtype).max)


def noise_of(reference: Array, truth: Array | None, kind: NoiseKind) -> Noise:
    """The noise of one output of one case, from one comparison of the reference with the truth."""
    if truth is None or truth.shape != reference.shape:
        return Noise(kind=kind)
    if reference.dtype.kind == "c":
        reference, truth = as_real(reference), as_real(truth)
    if not is_float(reference):
        unstable = (reference != truth).reshape(-1)
        return Noise(
            flips=float(unstable.sum()), unstable=unstable, kind=NoiseKind.EXACT, members=1
        )
    total, worst, count = 0.0, 0.0, 0
    for r, t in _pieces(reference, truth):
        d = _finite(r - t)
        total, count = total + _dot(d, d), count + d.size
        worst = max(worst, _peak(d))
    return Noise(rms=math.sqrt(total / count) if count else 0.0, worst=worst, kind=kind, members=1)


def pool(noises: Sequence[Noise]) -> Noise:
    """One noise from several: the rms of all, the worst of all, the union of what is not decided."""
    if not noises:
        return Noise()
    masks = [n.unstable for n in noises if n.unstable is not None]
    union = np.logical_or.reduce(masks) if masks else None
    return Noise(
        rms=math.sqrt(sum(n.rms**2 for n in noises) / len(noises)),
        worst=max(n.worst for n in noises),
        flips=sum(n.flips for n in noises) / len(noises),
        unstable=union,
        kind=noises[0].kind,
        members=sum(n.members for n in noises),
    )


def steadied(noises: Sequence[Noise], samples: Sequence[Array], reference: Array) -> list[Noise]:
    """The noise of re-runs without a truth, but their spread among themselves where they agree on another answer than the reference.

    A watched pass may take another path than a plain one (fused kernels, nested tensors): that is no rounding, and would let anything pass.
    """
    alike = [sample for sample in samples if sample.shape == reference.shape]
    if len(alike) < 2:
        return list(noises)
    spread = [
        noise_of(sample, alike[0].astype(np.float64), NoiseKind.PERTURBED) for sample in alike[1:]
    ]
    finite = _finite(reference.astype(np.float64))
    floor = (
        FLOOR * eps(reference.dtype) * math.sqrt(float(np.mean(np.square(finite))))
        if finite.size
        else 0.0
    )
    return spread if pool(noises).rms > _OTHERWISE * max(pool(spread).rms, floor) else list(noises)


def measure(
    *,
    case: str,
    group: str,
    backend: str,
    output: str,
    reference: Array,
    truth: Array | None,
    candidate: Array | None,
    noise: Noise,
    floor_scale: float = 0.0,
    atol: float = 1e-4,
    rtol: float = 1e-3,
    confirmed: bool = False,
) -> Gap:
    """The gap of one output: `truth` is the float64 answer, or None where only `noise` (from re-runs) is known."""
    common: dict[str, Any] = {
        "case": case,
        "group": group,
        "backend": backend,
        "output": output,
        "confirmed": confirmed,
    }
    if candidate is None:
        return Gap(**common, status=Status.MISSING, detail="the candidate has no such output")
    if candidate.shape != reference.shape:
        return Gap(
            **common,
            status=Status.SHAPE,
            detail=f"reference {list(reference.shape)}, candidate {list(candidate.shape)}",
        )
    status, detail = Status.COMPARED, ""
    if candidate.dtype != reference.dtype:
        status, detail = Status.DTYPE, f"reference {reference.dtype}, candidate {candidate.dtype}"
    if reference.size == 0:
        return Gap(
            **common,
            status=Status.EMPTY if status is Status.COMPARED else status,
            detail=detail or "nothing to compare: the output is empty",
        )
    if not is_float(reference) and reference.dtype.kind != "c":
        return Gap(**common, status=status, detail=detail, **_exact(reference, candidate, noise))
    if reference.dtype.kind == "c":
        reference, candidate = as_real(reference), as_real(candidate)
        truth = None if truth is None else as_real(truth)
    truth = reference if truth is None or truth.shape != reference.shape else truth
    return Gap(
        **common,
        status=status,
        detail=detail,
        **_floats(reference, truth, candidate, noise, floor_scale, atol, rtol),
    )


def pair(one: Array, other: Array | None) -> Gap:
    """Two answers to one question beside each other: no truth, no noise, no name."""
    return measure(
        case="",
        group="",
        backend="",
        output="",
        reference=one,
        truth=None,
        candidate=other,
        noise=Noise(),
    )


def _exact(reference: Array, candidate: Array, noise: Noise) -> dict[str, Any]:
    """Integers and booleans: no subtraction before the comparison, so 2**53 + 1 is not 2**53."""
    differ = (reference != candidate).reshape(-1)
    mismatches = int(differ.sum())
    undecided = (
        int((differ & noise.unstable).sum())
        if noise.unstable is not None and noise.unstable.shape == differ.shape
        else 0
    )
    ratio = 0.0 if mismatches == 0 else mismatches / noise.flips if noise.flips else math.inf
    worst = np.unravel_index(int(np.argmax(differ)), reference.shape) if mismatches else None
    gap = (
        np.abs(reference.astype(np.float64) - candidate.astype(np.float64))
        if mismatches
        else np.zeros(1)
    )
    return {
        "compared": reference.size,
        "noise_kind": NoiseKind.EXACT,
        "noise": noise.flips,
        "noise_ratio": ratio,
        "worst_ratio": ratio,
        "mismatches": mismatches,
        "unstable": undecided,
        "max_abs": float(gap.max()),
        "rms": float(np.sqrt(np.mean(gap**2))),
        "worst": tuple(int(i) for i in worst) if worst is not None else None,
        "allowance": math.inf if mismatches else 0.0,
        "scale": float(np.abs(reference.astype(np.float64)).max()),
        "max_rel": 0.0,
    }


def _floats(
    reference: Array,
    truth: Array,
    candidate: Array,
    noise: Noise,
    floor_scale: float,
    atol: float,
    rtol: float,
) -> dict[str, Any]:
    square = truths = dots = norms = 0.0
    peak = max_abs = max_rel = allowance = ulps = 0.0
    count = lost = odd = at = 0
    needed = np.zeros(len(RTOL_GRID))
    step, tiny = eps(reference.dtype), float(ml_dtypes.finfo(reference.dtype).tiny)
    start = 0
    for r, t, c in _pieces(reference, truth, candidate):
        usable = np.isfinite(r) & np.isfinite(t) & np.isfinite(c)
        if not usable.all():
            fine = np.isfinite(r)
            lost += int((fine & ~np.isfinite(c)).sum())
            odd += int((~fine & ~((r == c) | (np.isnan(r) & np.isnan(c)))).sum())
            r, t, c = np.where(usable, r, 0.0), np.where(usable, t, 0.0), np.where(usable, c, 0.0)
        error, apart, size = c - t, np.abs(c - r), np.abs(r)
        count += int(usable.sum())
        square, truths, dots, norms = (
            square + _dot(error, error),
            truths + _dot(t, t),
            dots + _dot(c, t),
            norms + _dot(c, c),
        )
        top = _peak(error)
        if top > peak:
            peak, at = top, start + int(np.argmax(np.abs(error)))
        if apart.any():
            max_abs = max(max_abs, float(apart.max()))
            max_rel = max(max_rel, float((apart / np.maximum(size, tiny)).max()))
            ulps = max(ulps, float((apart / np.maximum(size * step, tiny)).max()))
            allowance = max(allowance, float((apart / (atol + rtol * size)).max()))
            needed = np.maximum(needed, [float((apart - g * size).max()) for g in RTOL_GRID])
        start += r.size
    scale = math.sqrt(truths / count) if count else 0.0
    rms = math.sqrt(square / count) if count else 0.0
    floor = max(
        (FLOOR if step > 1e-15 else FLOOR_DOUBLE) * step * max(scale, floor_scale), tiny * step
    )  # never below the smallest number there is
    level, worst_level = max(noise.rms, floor), max(noise.worst, 2.0 * max(noise.rms, floor))
    top1, rank = _decisions(reference, candidate)
    return {
        "compared": count,
        "scale": scale,
        "max_abs": max_abs,
        "max_rel": max_rel,
        "rms": rms,
        "ulps": ulps,
        "cosine": dots / math.sqrt(truths * norms) if truths and norms else float(truths == norms),
        "allowance": allowance,
        "atol_needed": tuple(float(v) for v in needed),
        "noise": level,
        "noise_kind": noise.kind,
        "lost": lost,
        "odd": odd,
        "noise_ratio": rms / level if level else (math.inf if rms else 0.0),
        "worst_ratio": peak / worst_level if worst_level else (math.inf if peak else 0.0),
        "worst": tuple(int(i) for i in np.unravel_index(at, reference.shape)) if peak else None,
        "top1": top1,
        "rank": rank,
        "sqnr_db": 20 * math.log10(scale / rms) if rms and scale else math.inf,
    }


def _decisions(reference: Array, candidate: Array) -> tuple[float | None, float | None]:
    """Agreement of the best class, and of the whole order, where the last axis looks like scores."""
    if (
        reference.ndim < 2
        or not 2 <= reference.shape[-1] <= 4096
        or reference.size > _LARGEST_SCORES
    ):
        return None, None
    r, c = (a.astype(np.float64).reshape(-1, a.shape[-1]) for a in (reference, candidate))
    if not (np.isfinite(r).all() and np.isfinite(c).all()):
        return None, None
    top = float((r.argmax(-1) == c.argmax(-1)).mean())
    return top, float((r.argsort(-1, kind="stable") == c.argsort(-1, kind="stable")).mean())


def _pieces(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Flat float64 views of the same places of all arrays, small enough to stay in the cache."""
    flat = [a.reshape(-1) for a in arrays]
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, flat[0].size, _PIECE):
            yield tuple(a[start : start + _PIECE].astype(np.float64) for a in flat)


def _dot(a: Array, b: Array) -> float:
    """Not `a @ b`: its threads wait for each other longer than these short vectors take."""
    return float(np.add.reduce(a * b))


def _finite(array: Array) -> Array:
    good = np.isfinite(array)
    return array if good.all() else array[good]


def _peak(array: Array) -> float:
    return max(float(array.max()), -float(array.min())) if array.size else 0.0


def as_real(array: Array) -> Array:
    """Complex numbers as exporters write them: a last dim of the real and the imaginary part; anything else as it is."""
    return np.stack([array.real, array.imag], axis=-1) if array.dtype.kind == "c" else array
