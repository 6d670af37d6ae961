"""Which outputs prove nothing, and why: a reference that never varies, numbers that were never there, noise in which any answer passes.

A finding of this module takes a FAITHFUL away, or states the reason why it stands; it never excuses a difference.
"""

import math
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
"""Of an output's size: a file this near to the truth agrees, however large the noise. A half file may keep in float32 what overflows in a half module (not measured)."""
_USUAL = 0.5
"""Share of the cases of an output that fail `allclose` from which on the reason is stated (not measured)."""
_UNSTEADY = ("nondeterminism", "threads", "wrong-after-empty", "stale-output")
"""Findings that a runtime answers otherwise each time."""
_UNPROVEN = (Domain.NAN, Domain.INF, Domain.EMPTY)
"""Domains in which nothing is proven; where ties were broken alike, the rest was compared."""
_BAD = (Status.SHAPE, Status.MISSING, Status.REFUSED, Status.DTYPE)


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
        undecided = {
            name: array
            for name, array in zip(self._names, reference, strict=True)
            if name not in self._varies and array.size
        }
        if case.domain is not None or not undecided:
            return
        contents = [np.ascontiguousarray(array).tobytes() for array in case.inputs.values()]
        inputs = zlib.crc32(b"".join(contents))
        for name, array in undecided.items():
            if _has_numbers(array):
                self._add(name, array, inputs)

    def _add(self, name: str, array: Array, inputs: int) -> None:
        """Remember one answer, by a checksum of its inputs; the first one of each shape is kept."""
        output = _checksum(array)
        by_shape = self._seen[name]
        if array.shape not in by_shape:
            by_shape[array.shape] = (inputs, output)
            # a table of positions has no inputs but sizes, and is no constant
            if len(by_shape) > 1 and not _uniform(array):
                self._varies.add(name)
            return
        first_inputs, first_output = by_shape[array.shape]
        if output != first_output:
            self._varies.add(name)
        elif inputs != first_inputs:
            self._repeated.add(name)


def _has_numbers(array: Array) -> bool:
    """Whether any element is finite."""
    kind = array.dtype.kind
    if kind in "iub":
        return True
    if kind == "c":
        return bool(np.isfinite(array).any())
    return bool(np.isfinite(array.astype(np.float64)).any())


def _checksum(array: Array) -> int:
    """Of the values: -0.0 has that of 0.0."""
    if array.dtype.kind != "b":
        array = array + np.zeros((), array.dtype)
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
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
) -> Assessment:
    """Mark what proves nothing; `plain` names the cases of ordinary values, `random` and `constant` outputs of the reference."""
    by_output: dict[str, list[Gap]] = {}
    for gap in gaps:
        by_output.setdefault(gap.output, []).append(gap)
    filled = {name for name, own_gaps in by_output.items() if not _all_empty(own_gaps)}
    findings = list(_constants(filled, constant))
    void: dict[str, Void] = {}
    if any(finding.voids for finding in findings):
        void = dict.fromkeys(filled, Void.CONSTANT)
    for name, own_gaps in by_output.items():
        if name in random:
            continue
        findings += _never_compared(name, own_gaps, only_output=len(by_output) == 1)
        noisy = _noisy(name, own_gaps, policy, plain)
        if noisy is not None:
            findings.append(noisy)
            if noisy.voids:
                void[name] = Void.NOISE
    void |= dict.fromkeys(random, Void.RANDOM)
    return Assessment(
        gaps=tuple(replace(gap, void=void.get(gap.output)) for gap in gaps),
        findings=tuple(findings),
    )


def _all_empty(gaps: Sequence[Gap]) -> bool:
    return all(gap.status is Status.EMPTY for gap in gaps)


def _constants(
    filled: Collection[str],
    constant: Collection[str],
) -> Iterator[Finding]:
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


def _never_compared(
    name: str,
    gaps: Sequence[Gap],
    *,
    only_output: bool,
) -> Iterator[Finding]:
    """An output of which no number was ever compared."""
    if any(_proves_something(gap) for gap in gaps):
        return
    if all(gap.status is Status.EMPTY or gap.domain is Domain.EMPTY for gap in gaps):
        if not only_output:
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


def _proves_something(gap: Gap) -> bool:
    """Whether numbers were compared, or their absence is a fault."""
    if gap.compared and gap.domain not in _UNPROVEN:
        return True
    return gap.domain is None and gap.status in _BAD


def _noisy(
    name: str,
    gaps: Sequence[Gap],
    policy: Policy,
    plain: Collection[str],
) -> Finding | None:
    """Where `allclose` would fail, or any answer pass, and yet nothing is beyond noise: the reason, with its figures.

    1. The noise lets any answer pass in every ordinary case, and the file is not near the truth: nothing is proven.
    2. `allclose` fails as a rule: rounding explains it.
    3. The noise lets any answer pass, but the file is near the truth.
    """
    measured = [gap for gap in gaps if _is_within_noise(gap, policy)]
    failing = [gap for gap in measured if not within_tolerance(gap, policy)]
    ordinary = [gap for gap in measured if gap.case in plain]
    any_passes = _any_answer_passes(ordinary)
    farthest = max(map(_error_share, ordinary), default=0.0)
    if any_passes and farthest > _NEAR and not _any_close(ordinary, policy):  # 1
        return Finding(
            code=Void.NOISE.value,
            voids=True,
            what=f"output `{name}`: {_figures(ordinary)}, so any answer would pass: nothing is proven of it",
            help="try inputs on which the module is steady (shorter, smaller), or the module in float64",
        )
    if _fails_as_a_rule(failing, measured):  # 2
        worst = max(failing, key=lambda gap: gap.noise_ratio).noise_ratio
        what = f"output `{name}`: allclose fails in {len(failing)} of {len(measured)} comparisons, and rounding explains it: {_figures(failing)}; the file stays within {worst:.1f} times that"
        return Finding(code=Void.NOISE.value, what=what)
    if any_passes:  # 3
        return Finding(
            code=Void.NOISE.value,
            what=f"output `{name}`: {_figures(ordinary)}; the file is within {farthest:.2g} of the output's size",
        )
    return None


def _is_within_noise(gap: Gap, policy: Policy) -> bool:
    """A gap of floats that counts, in a file that is not quantized, and that noise explains."""
    if not gap.compared or gap.domain is not None:
        return False
    if gap.noise_kind in (*QUANTIZED, NoiseKind.EXACT):
        return False
    return judge_gap(gap, policy) is Verdict.FAITHFUL


def _any_answer_passes(gaps: Sequence[Gap]) -> bool:
    """Whether the noise of all these gaps is so large that any answer of the output's size would pass."""
    return bool(gaps) and all(_noise_share(gap) > _ANY for gap in gaps)


def _any_close(gaps: Sequence[Gap], policy: Policy) -> bool:
    return any(within_tolerance(gap, policy) for gap in gaps)


def _fails_as_a_rule(failing: Sequence[Gap], measured: Sequence[Gap]) -> bool:
    """Whether the failing gaps are half of all, or at least one in each group of cases."""
    if not failing:
        return False
    if len(failing) >= _USUAL * len(measured):
        return True
    return {gap.group for gap in failing} == {gap.group for gap in measured}


def _noise_share(gap: Gap) -> float:
    """The noise in units of the output's size."""
    if gap.scale:
        return gap.noise / gap.scale
    if gap.noise:
        return math.inf
    return 0.0


def _error_share(gap: Gap) -> float:
    """The error in units of the output's size."""
    if not gap.scale:
        return math.inf
    return gap.rms / gap.scale


def _figures(gaps: Sequence[Gap]) -> str:
    """How large the noise is, in words."""
    shares = [_noise_share(gap) for gap in gaps]
    return f"the reference's own rounding noise is {statistics.median(shares):.2g} of the output's size there (the median; {min(shares):.2g} to {max(shares):.2g})"


def _uniform(array: Array) -> bool:
    return bool((array == array.reshape(-1)[0]).all())


def discount_random(
    findings: Sequence[Finding],
    random: Mapping[str, Finding],
) -> list[Finding]:
    """The findings; that a runtime answers otherwise each time (asked again, with other threads) does not count where the reference does so, too."""
    outputs = tuple(f"output `{name}`" for name in random)
    discounted = []
    for finding in findings:
        if finding.code in _UNSTEADY and any(output in finding.what for output in outputs):
            finding = replace(finding, counts=False)
        discounted.append(finding)
    return discounted
