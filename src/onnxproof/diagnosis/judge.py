"""The judge of causes: a cause hands in a counterfactual, and is proven, likely or refuted by what that gives on many cases.

1. On the witness the counterfactual must explain the fault: the changed reference gives the candidate's answers, or the mended
   candidate gives the truth.
2. On other cases that show the fault it must explain that, too.
3. On cases that don't show it, it must change nothing beyond noise.

What explains all and could be tried on enough cases is proven. What could not be tried on enough of them is likely. No cause calls itself proven.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from onnxproof.diagnosis import limits

if TYPE_CHECKING:
    from onnxproof.diagnosis.trial_cases import TrialCase, TrialCases


class Standing(StrEnum):
    """What a counterfactual showed."""

    PROVEN = "proven"
    LIKELY = "likely"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A change of the reference or of the candidate, with which the two should agree on every case."""

    error: "Callable[[TrialCase], float | None]"
    """The relative error that is left between the two with the change; None where it can't be tried on this case."""
    in_reference: bool
    """True when the fault was put into the reference, False when the candidate was mended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a counterfactual gave on the cases that it was run on."""

    standing: Standing
    before: float
    """The relative error of the candidate on the witness."""
    after: float
    """The relative error that is left there."""
    noise: float = 1.0
    """The relative error on the witness that rounding explains."""
    failing: int = 1
    """Cases that show the fault, the witness included, on which it could be tried."""
    explained: int = 1
    passing: int = 0
    """Cases that don't show it."""
    unchanged: int = 0
    in_reference: bool = False
    cut_short: bool = False
    """True when the time was over before all cases were tried."""

    @property
    def proven(self) -> bool:
        """Whether it was shown on enough cases, and contradicted by none."""
        return self.standing is Standing.PROVEN

    def __str__(self) -> str:
        """How many cases of each kind it was tried on, and what came of it."""
        cases = "case" if self.failing == 1 else "cases"
        before = _times(self.before / self.noise)
        after = _times(self.after / self.noise)
        tally = f"on {self.explained} of {self.failing} failing {cases} ({before} noise before, {after} after)"
        return f"{tally}{self._about_passing()}{self._about_time()}"

    def _about_passing(self) -> str:
        if not self.passing:
            return "; no case was found that passes"
        changed = self.passing - self.unchanged
        number = "none" if changed == 0 else str(changed)
        ones = "one" if self.passing == 1 else "ones"
        verb = "changes" if self.in_reference else "breaks"
        return f" and {verb} {number} of {self.passing} passing {ones}"

    def _about_time(self) -> str:
        if self.cut_short:
            return "; no time was left for further cases"
        return ""


def _times(ratio: float) -> str:
    """A multiple of the noise for people: three digits, thousands with commas."""
    if not ratio < float("inf"):
        return "no answer, or not finite, in place of"
    if ratio >= 100:
        return f"{ratio:,.0f}x"
    return f"{ratio:.2g}x"


def judge(counterfactual: Counterfactual, witness: "TrialCase", cases: "TrialCases") -> Judgement:
    """Run a counterfactual on the witness, then, if it holds there, on the other cases."""
    after = _error(counterfactual, witness)
    if not witness.is_fixed(after):
        return _judgement(Standing.REFUTED, witness, after, counterfactual, _Tally(explained=0))
    tally = _Tally()
    for case in cases.others_that_fail():
        tally.add_failing(_outcome(counterfactual, case, cases))
    for case in cases.that_pass():
        tally.add_passing(_outcome(counterfactual, case, cases))
    tally.cut_short = cases.deadline.passed
    standing = tally.standing(some_pass=bool(cases.that_pass()))
    return _judgement(standing, witness, after, counterfactual, tally)


@dataclass(slots=True)
class _Tally:
    failing: int = 1
    explained: int = 1
    passing: int = 0
    unchanged: int = 0
    cut_short: bool = False

    def add_failing(self, right: bool | None) -> None:
        """Count a case that shows the fault: explained, not explained, or not tried."""
        if right is not None:
            self.failing += 1
            self.explained += right

    def add_passing(self, right: bool | None) -> None:
        """Count a case that does not show it: unchanged, changed, or not tried."""
        if right is not None:
            self.passing += 1
            self.unchanged += right

    def standing(self, *, some_pass: bool) -> Standing:
        """Refuted by one passing case that it changes, or by most of the failing ones; proven by enough of both kinds.

        Where no case passes at all, more failing ones are asked for in their place.
        """
        if self.unchanged < self.passing or 2 * self.explained <= self.failing:
            return Standing.REFUTED
        others = self.failing - 1
        enough = others >= limits.OTHER_CASES and self.passing >= limits.PASSING_CASES
        if not some_pass:
            enough = others >= limits.OTHER_CASES_WHERE_NONE_PASSES
        if enough and self.explained == self.failing:
            return Standing.PROVEN
        return Standing.LIKELY


def _outcome(counterfactual: Counterfactual, case: "TrialCase", cases: "TrialCases") -> bool | None:
    """Whether the two agree on a case with the change; None where it can't be tried, answers of NaN alone say nothing, or no time is left."""
    if cases.deadline.passed or (counterfactual.in_reference and case.has_no_numbers):
        return None
    error = counterfactual.error(case)
    if error is None:
        return None
    if not case.fails:
        return error <= case.limit
    allowed = max(case.limit, case.before / limits.OTHER_CASES_IMPROVEMENT)
    return error <= allowed


def _error(counterfactual: Counterfactual, case: "TrialCase") -> float:
    error = counterfactual.error(case)
    if error is None:
        return float("inf")
    return error


def _judgement(
    standing: Standing,
    witness: "TrialCase",
    after: float,
    counterfactual: Counterfactual,
    tally: _Tally,
) -> Judgement:
    return Judgement(
        standing=standing,
        before=witness.before,
        after=after,
        noise=witness.scene.noise,
        failing=tally.failing,
        explained=tally.explained,
        passing=tally.passing,
        unchanged=tally.unchanged,
        in_reference=counterfactual.in_reference,
        cut_short=tally.cut_short,
    )
