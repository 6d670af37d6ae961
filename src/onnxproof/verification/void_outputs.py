"""Which outputs prove nothing, and why: a reference that never varies, numbers that were never there, noise in which any answer passes.

What is found here takes a FAITHFUL away, or states the reason why it stands; it never excuses a difference.
"""

import statistics
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.options import Policy
from onnxproof.results import Case, Domain, Finding, Gap, NoiseKind, Status, Verdict, Void
from onnxproof.results.judging import QUANTIZED, judge_gap, within_tolerance

Array = np.ndarray[Any, Any]
_ANY = 1 / 3
"""Noise of this share of an output's size lets any answer of that size pass, since three times the noise always does (`judge`)."""
_NEAR = 0.05
"""Of an output's size: a file this near to the truth agrees, however large the noise. A half file may keep in float32 what overflows in a half module."""
_USUAL = 0.5
"""Share of the cases of an output that fail `allclose` from which on the reason is stated."""
_UNSTEADY = ("nondeterminism", "threads", "wrong-after-empty", "stale-output")
_APART = (Domain.NAN, Domain.INF, Domain.EMPTY)
"""Domains in which nothing is proven; where ties were broken alike, the rest was compared."""


class Answers:
    """Whether each output of the reference depends on its inputs, from a checksum of each answer until it does."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._seen: dict[str, dict[tuple[int, ...], tuple[int, int]]] = defaultdict(dict)
        self._varies: set[str] = set()
        self._repeated: set[str] = set()

    @property
    def constant(self) -> frozenset[str]:
        """Outputs that were the same for different inputs, and never another."""
        return frozenset(self._repeated - self._varies)

    def add(self, case: Case, reference: Sequence[Array]) -> None:
        """Remember one case."""
        open_ones = [
            (name, array)
            for name, array in zip(self._names, reference, strict=True)
            if name not in self._varies and array.size
        ]
        if case.domain is not None or not open_ones:
            return
        asked = zlib.crc32(
            b"".join(np.ascontiguousarray(array).tobytes() for array in case.inputs.values())
        )
        for name, array in open_ones:
            if (
                array.dtype.kind in "iub"
                or np.isfinite(
                    array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
                ).any()
            ):
                self._add(
                    name,
                    array if array.dtype.kind == "b" else array + np.zeros((), array.dtype),
                    asked,
                )  # so that -0.0 is 0.0

    def _add(self, name: str, array: Array, asked: int) -> None:
        said, known = zlib.crc32(np.ascontiguousarray(array).tobytes()), self._seen[name]
        if array.shape not in known:
            known[array.shape] = (asked, said)
            if len(known) > 1 and not _uniform(
                array
            ):  # a table of positions has no inputs but sizes, and is no constant
                self._varies.add(name)
        elif known[array.shape][1] != said:
            self._varies.add(name)
        elif known[array.shape][0] != asked:
            self._repeated.add(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessed:
    """The gaps, with those that prove nothing marked, and what is to be said about them."""

    gaps: tuple[Gap, ...]
    findings: tuple[Finding, ...] = field(default=())


def assess(
    gaps: Sequence[Gap],
    policy: Policy,
    *,
    plain: Collection[str],
    random: Collection[str],
    constant: Collection[str],
) -> Assessed:
    """Mark what proves nothing; `plain` names the cases of ordinary values, `random` and `constant` outputs of the reference."""
    by_output: dict[str, list[Gap]] = {}
    for gap in gaps:
        by_output.setdefault(gap.output, []).append(gap)
    filled = {
        name
        for name, mine in by_output.items()
        if any(gap.status is not Status.EMPTY for gap in mine)
    }
    findings = list(_constants(filled, constant))
    void = (
        dict.fromkeys(filled, Void.CONSTANT) if any(finding.voids for finding in findings) else {}
    )
    for name, mine in by_output.items():
        if name in random:
            continue
        findings += _never(name, mine, alone=len(by_output) == 1)
        noisy = _noisy(name, mine, policy, plain)
        findings += [noisy] if noisy is not None else []
        void |= {name: Void.NOISE} if noisy is not None and noisy.voids else {}
    void |= dict.fromkeys(random, Void.RANDOM)
    return Assessed(
        gaps=tuple(replace(gap, void=void.get(gap.output)) for gap in gaps),
        findings=tuple(findings),
    )


def _constants(filled: Collection[str], constant: Collection[str]) -> Iterator[Finding]:
    if filled and set(filled) <= set(constant):
        names = ", ".join(f"`{name}`" for name in sorted(filled))
        yield Finding(
            code=Void.CONSTANT.value,
            voids=True,
            what=f"the reference gives the same answer whatever it is asked: {names} did not change by a bit",
            help="look for a mask that hides everything, an activation that is dead, or weights that were never loaded",
        )
        return
    for name in sorted(set(constant) & set(filled)):
        yield Finding(
            code=Void.CONSTANT.value,
            what=f"output `{name}` does not depend on the inputs: the reference gave the same for all of them",
        )


def _never(name: str, gaps: Sequence[Gap], *, alone: bool) -> Iterator[Finding]:
    """An output of which no number was ever compared."""
    if any(gap.compared and gap.domain not in _APART for gap in gaps) or any(
        gap.domain is None and gap.status in _BAD for gap in gaps
    ):
        return
    if all(gap.status is Status.EMPTY or gap.domain is Domain.EMPTY for gap in gaps):
        if not alone:
            yield Finding(
                code="output-empty",
                what=f"output `{name}` was empty in every case: nothing but its shape and dtype was compared",
            )
        return
    yield Finding(
        code="output-not-finite",
        voids=True,
        what=f"output `{name}` of the reference has no finite number in any case: nothing of it was compared",
        help="look at the module itself: its weights, its example inputs, a division by zero",
    )


_BAD = (Status.SHAPE, Status.MISSING, Status.REFUSED, Status.DTYPE)


def _noisy(
    name: str, gaps: Sequence[Gap], policy: Policy, plain: Collection[str]
) -> Finding | None:
    """Where `allclose` would fail, or any answer pass, and yet nothing is beyond noise: the reason, with its figures."""
    measured = [
        gap
        for gap in gaps
        if gap.compared
        and gap.domain is None
        and gap.noise_kind not in (*QUANTIZED, NoiseKind.EXACT)
        and judge_gap(gap, policy) is Verdict.FAITHFUL
    ]
    ordinary = [gap for gap in measured if gap.case in plain]
    failing = [gap for gap in measured if not within_tolerance(gap, policy)]
    loose = [gap for gap in ordinary if _share(gap) > _ANY]
    near = max((gap.rms / gap.scale if gap.scale else float("inf") for gap in loose), default=0.0)
    if (
        loose
        and len(loose) == len(ordinary)
        and near > _NEAR
        and not any(within_tolerance(gap, policy) for gap in ordinary)
    ):
        return Finding(
            code=Void.NOISE.value,
            voids=True,
            what=f"output `{name}`: {_figures(loose)}, so any answer would pass: nothing is proven of it",
            help="try inputs on which the module is steady (shorter, smaller), or the module in float64",
        )
    if failing and (
        len(failing) >= _USUAL * len(measured)
        or {gap.group for gap in failing} == {gap.group for gap in measured}
    ):
        what = f"output `{name}`: allclose fails in {len(failing)} of {len(measured)} comparisons, and rounding explains it: {_figures(failing)}; the file stays within {max(gap.noise_ratio for gap in failing):.1f} times that"
        return Finding(code=Void.NOISE.value, what=what)
    if loose and len(loose) == len(ordinary):
        return Finding(
            code=Void.NOISE.value,
            what=f"output `{name}`: {_figures(loose)}; the file is within {near:.2g} of the output's size",
        )
    return None


def _share(gap: Gap) -> float:
    if gap.scale:
        return gap.noise / gap.scale
    return float("inf") if gap.noise else 0.0


def _figures(gaps: Sequence[Gap]) -> str:
    shares = [_share(gap) for gap in gaps]
    return f"the reference's own rounding noise is {statistics.median(shares):.2g} of the output's size there (the median; {min(shares):.2g} to {max(shares):.2g})"


def _uniform(array: Array) -> bool:
    return bool((array == array.reshape(-1)[0]).all())


def uncounted(findings: Sequence[Finding], random: Mapping[str, Finding]) -> list[Finding]:
    """The findings, but that a runtime answers otherwise each time (asked again, with other threads) counts for nothing where the reference does, too."""
    said = tuple(f"output `{name}`" for name in random)
    return [
        replace(f, counts=False)
        if f.code in _UNSTEADY and any(name in f.what for name in said)
        else f
        for f in findings
    ]
