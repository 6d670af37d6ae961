"""Whether a difference lives only in a domain where runtimes differ by nature: exact ties, NaN, infinities, empty tensors, what a mask hides.

1. Empty: the case, or the reference's answer, is empty.
2. Infinity: the reference is finite by luck, and a re-run or the truth is not.
3. The inputs are not finite: a difference that is still there with finite inputs is a fault, any other belongs to the input's domain.
4. A decision inside the model flips under louder rounding: the gap is measured again by the noise of that.
5. Ties: the candidate agrees with the reference once exact ties are broken by a rule.
6. Masks: the two differ only in what a mask hides, and agree once it is opened.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.errors import BackendError
from onnxproof.numerics.measure import Noise, is_float, noise_of
from onnxproof.options import Policy
from onnxproof.results import Case, Domain, Gap, Status, Verdict
from onnxproof.results.judging import beyond_noise, judge_gap
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.case_reference import TIE_RULES, CaseReference, ReferenceRefused
from onnxproof.verification.gap_measurement import RECHECK_SHARE, Comparison, GapMeasurer
from onnxproof.verification.masked import Masks, agree_with_wider_masks

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """How the classifier has further cases answered."""

    answer: Callable[[Case], CaseReference]
    """The reference's side of a case; raises `ReferenceRefused`."""
    compare: Callable[[CaseReference, Candidate], list[Gap]]
    """The gaps of one candidate, by output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainClassifier:
    """Says of a confirmed gap to which odd domain it belongs, if to one."""

    measurer: GapMeasurer
    policy: Policy
    rerun: Rerun
    half: str | None
    decides: bool
    """Whether the graph has an operator at which an answer may jump."""
    orders: bool
    """Whether the graph has an operator whose answer depends on the order of equal values."""
    masks: Masks | None

    def classify(self, gap: Gap, comparison: Comparison) -> Gap:
        """The gap with its domain; without one it counts. The steps are those of the module's docstring."""
        classified = self._classify_by_values(gap, comparison)
        return self._measure_beside_masks(classified, comparison) or classified

    def _classify_by_values(self, gap: Gap, comparison: Comparison) -> Gap:
        """Steps 1 to 5."""
        if _is_empty(gap, comparison):  # 1
            return replace(gap, domain=Domain.EMPTY)
        if self._is_undecided_infinity(gap, comparison):  # 2
            return replace(gap, domain=Domain.INF)
        if _has_odd_inputs(gap, comparison):  # 3
            return replace(gap, domain=self._domain_of_nonfinite(gap, comparison))
        if comparison.output is None or gap.status is Status.SHAPE:
            return gap
        if self._flips(gap, comparison.reference, comparison.place):  # 4
            remeasured = self.measurer.measure(comparison)
            if not self.measurer.is_suspicious(remeasured):
                return replace(remeasured, confirmed=True)
        if self._agrees_with_ties_broken(comparison, comparison.output):  # 5
            return replace(gap, domain=Domain.TIES)
        return gap

    def _is_undecided_infinity(self, gap: Gap, comparison: Comparison) -> bool:
        """A half file is not to be blamed where half itself ends."""
        if not gap.lost and self.half is None:
            return False
        return comparison.reference.undecided_infinities(comparison.place)

    def _flips(
        self,
        gap: Gap,
        reference: CaseReference,
        place: int,
    ) -> bool:
        return self.decides and not gap.lost and reference.measure_flips(place)

    def _domain_of_nonfinite(
        self,
        gap: Gap,
        comparison: Comparison,
    ) -> Domain | None:
        """The domain of a difference on inputs that are not finite; None where it is a fault.

        Where finite numbers differ, the case is tried with nothing but finite inputs: what is still there is no matter of NaN or infinity.
        """
        case = comparison.case
        compared = not gap.lost and gap.status is Status.COMPARED
        if not compared or not beyond_noise(gap, self.policy):
            return case.domain
        finite_inputs = {name: _without_nonfinite(array) for name, array in case.inputs.items()}
        finite_case = replace(case, inputs=finite_inputs, domain=None)
        try:
            finite_reference = self.rerun.answer(finite_case)
            finite_gaps = self.rerun.compare(finite_reference, comparison.candidate)
        except ReferenceRefused:
            return case.domain
        finite_gap = finite_gaps[comparison.place]
        if finite_gap.domain is not None:
            return finite_gap.domain
        if finite_gap.status is Status.COMPARED and judge_gap(finite_gap, self.policy) in (
            Verdict.DRIFT,
            Verdict.DIVERGED,
        ):
            return None
        return case.domain

    def _agrees_with_ties_broken(
        self,
        comparison: Comparison,
        output: Array,
    ) -> bool:
        """Whether the candidate says what the reference says with its ties broken by a rule."""
        if not self.orders:
            return False
        if comparison.answered is not None:  # a rule has an order of its own
            output = comparison.answered
            comparison = replace(comparison, output=output)
        return any(self._agrees_by_rule(comparison, output, rule) for rule in TIE_RULES)

    def _agrees_by_rule(
        self,
        comparison: Comparison,
        output: Array,
        rule: str,
    ) -> bool:
        answers = comparison.reference.with_ties_broken(rule)
        if answers is None:
            return False
        answer = answers[comparison.place]
        if answer.shape != output.shape:
            return False
        noise, truth = self._noise_with_ties_broken(comparison, answer, rule)
        gap = self.measurer.measure_against(comparison, answer=answer, truth=truth, noise=noise)
        return not self.measurer.is_suspicious(gap)

    def _noise_with_ties_broken(
        self, comparison: Comparison, answer: Array, rule: str
    ) -> tuple[Noise, Array | None]:
        """The noise of that very answer and its truth: another expert that is chosen at a tie has another noise."""
        noise = comparison.reference.noise(comparison.place)
        wide_answers = comparison.reference.with_ties_broken(rule, wide=True)
        if wide_answers is None or comparison.output is None or not is_float(comparison.output):
            return noise, None
        wide = wide_answers[comparison.place]
        if wide.shape != answer.shape:
            return noise, None
        own_noise = noise_of(answer, wide, comparison.reference.kind)
        if own_noise.rms > noise.rms:
            return own_noise, wide
        return noise, None

    def _measure_beside_masks(
        self,
        gap: Gap,
        comparison: Comparison,
    ) -> Gap | None:
        """Step 6: the gap of what no mask hides, where the two differ only in what one hides and agree once it is opened; else None."""
        case = comparison.case
        masks = self.masks
        if masks is None or not _may_be_masked(gap, comparison) or not masks.hidden(case.inputs):
            return None
        shape = comparison.reference.reference[comparison.place].shape
        excused = masks.excused(case.inputs, case.sizes, shape)
        visible_gap = self._measure_part(comparison, ~excused)
        if not excused.any():
            return None
        if visible_gap.compared and self.measurer.is_suspicious(visible_gap):
            return None

        def agree(inputs: Mapping[str, Array]) -> bool:
            other_case = replace(case, inputs=inputs)
            return self._agree(other_case, comparison.candidate, comparison.place)

        if not agree_with_wider_masks(masks, case.inputs, agree):
            return None
        return replace(visible_gap, domain=Domain.MASKED)

    def _agree(
        self,
        case: Case,
        candidate: Candidate,
        place: int,
    ) -> bool:
        """Whether the two agree on a case: everywhere, or but for the very places that a mask hides."""
        try:
            reference = self.rerun.answer(case)
            output = candidate.run(case.inputs)[place]
        except (ReferenceRefused, BackendError):
            return False
        comparison = Comparison(
            reference=reference, candidate=candidate, place=place, output=output
        )
        everything = np.ones(reference.reference[place].shape, bool)
        parts = [everything]
        if self.masks is not None:
            parts.append(~self.masks.excused(case.inputs, case.sizes, everything.shape))
        for keep in parts:
            if not keep.any():
                continue
            gap = self._measure_part(comparison, keep)
            if gap.compared and not self.measurer.is_suspicious(gap):
                return True
        return False

    def _measure_part(self, comparison: Comparison, keep: Array) -> Gap:
        """The gap of some values of an output only, by their own noise: measured again after re-runs, and again where a decision flips."""
        output = comparison.output
        if output is None or output.shape != keep.shape:
            return self.measurer.measure(comparison)
        reference = comparison.reference.select(comparison.place, keep)
        reference.estimate()
        part = replace(comparison, reference=reference, output=output[keep])
        gap = self.measurer.measure(part)
        if self.measurer.is_suspicious(gap, share=RECHECK_SHARE):
            reference.confirm()
            gap = replace(self.measurer.measure(part), confirmed=True)
        if self.measurer.is_suspicious(gap) and self._flips(gap, reference, comparison.place):
            gap = replace(self.measurer.measure(part), confirmed=True)
        if not gap.worst:
            return replace(gap, worst=None)
        flat_index = np.flatnonzero(keep)[gap.worst[0]]
        worst = np.unravel_index(flat_index, keep.shape)
        return replace(gap, worst=tuple(int(index) for index in worst))


def _is_empty(gap: Gap, comparison: Comparison) -> bool:
    if comparison.case.domain is Domain.EMPTY:
        return True
    answer = comparison.reference.reference[comparison.place]
    return gap.status is Status.SHAPE and answer.size == 0


def _has_odd_inputs(gap: Gap, comparison: Comparison) -> bool:
    """True for a case of an odd domain, unless the reference absorbed the NaN and the candidate did not."""
    domain = comparison.case.domain
    if domain is None:
        return False
    absorbed = gap.lost and domain is Domain.NAN and comparison.reference.all_finite()
    return not absorbed


def _may_be_masked(gap: Gap, comparison: Comparison) -> bool:
    """A difference of finite numbers that no other domain explains, in a file that is not quantized."""
    finite = comparison.output is not None and gap.status is not Status.SHAPE and not gap.lost
    return finite and gap.domain is None and comparison.reference.simulated is None


def _without_nonfinite(array: Array) -> Array:
    """The array with the mean of its finite values wherever there is none."""
    if not is_float(array):
        return array
    wide = array.astype(np.float64)
    finite = np.isfinite(wide)
    mean = 0.0
    if finite.any():
        mean = wide[finite].mean()
    return np.where(finite, wide, mean).astype(array.dtype)
