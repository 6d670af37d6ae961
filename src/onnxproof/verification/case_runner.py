"""One case on every backend: run, measure, and, before anything raises an alarm, measure the noise again.

A gap that looks too large is confirmed first. The reference is re-run with every operation rounded anew, and those
runs show which part of the gap any correct float32 implementation could have. What is left is then examined: does it
live only in a domain where runtimes differ by nature (`domain_classification`)?
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnxproof.errors import BackendError, Refused
from onnxproof.options import Policy
from onnxproof.reference.doubt import Doubts
from onnxproof.reference.protocol import Reference
from onnxproof.reference.rounding_check import NotExamined
from onnxproof.results import Case, Domain, Gap, NoiseKind, Note, Signature, Status, Verdict, Void
from onnxproof.results.judging import judge_gap, within_tolerance
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.case_reference import (
    LOUD_RERUNS,
    RERUNS,
    CaseReference,
    ReferenceRefused,
)
from onnxproof.verification.detections import Aligned, CaseRows, open_sets
from onnxproof.verification.domain_classification import DomainClassifier, Rerun
from onnxproof.verification.gap_measurement import RECHECK_SHARE, Comparison, GapMeasurer
from onnxproof.verification.masked import Masks
from onnxproof.verification.notes import Refusal, note_of, refused_gaps
from onnxproof.verification.quantized import Fidelity
from onnxproof.verification.void_outputs import Answers

Array = np.ndarray[Any, Any]
_PLAIN = 20.0
"""Times the limit from which on one re-run is enough to confirm a gap: chosen far above the limit, to be replaced by what healthy models reach before any
re-run (`python -m bench.first_measure`)."""
_ENOUGH_CONFIRMED = 3
"""Confirmed ordinary cases of one output after which the others are believed: the verdict stands (not measured)."""
_HALF_BIAS_SHARE = 0.5
"""What counts of the bias of a half file: its norms are folded into weights that are rounded to half once more (not measured)."""

ORDERING = frozenset(
    {"ArgMax", "ArgMin", "TopK", "Unique", "NonMaxSuppression", "If", "Loop", "Scan"}
)
"""Operators whose answer depends on the order of equal values."""
DISCRETE = ORDERING | frozenset(
    {
        "Round",
        "Floor",
        "Ceil",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
        "Equal",
        "Where",
        "Cast",
        "Sign",
        "NonZero",
        "Mod",
        "QuantizeLinear",
        "DynamicQuantizeLinear",
        "Resize",
        "GridSample",
        "Gather",
        "GatherND",
        "GatherElements",
        "HardSigmoid",
        "Atan",
        "Div",
        "ThresholdedRelu",
        "OneHot",
        "CumSum",
        "Sqrt",
    }
)
"""Operators at which an answer may jump: only where there is one can a decision have flipped."""


class Unconfirmed(Exception):
    """A case differs beyond noise, and no time is left for the re-runs that would confirm it."""


class NoMemory(ReferenceRefused):
    """The machine has too little memory at the moment for a case of a file that answered others: that says nothing about the file."""


@dataclass(slots=True)
class Outcome:
    """What one case gave."""

    gaps: list[Gap] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    reference: CaseReference | None = None
    """The reference's side of it, for a recording."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What it took on each backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """What a trial knows of the file and of the time."""

    half: str | None = None
    """The half precision of the file, if it has one."""
    seed: int = 0
    op_types: frozenset[str] = DISCRETE
    """The operators of the file."""
    fidelity: Fidelity | None = None
    """The simulation of a quantized file."""
    affords: Callable[[int, float], bool] = lambda reruns, each_s: True
    """Whether so many re-runs of at least so many seconds each still fit into the budget."""
    masks: Masks | None = None


class Trial:
    """Runs cases one by one; holds no tensor between two of them."""

    def __init__(
        self,
        reference: Reference,
        candidates: Sequence[Candidate],
        signature: Signature,
        policy: Policy,
        options: TrialOptions,
    ) -> None:
        self._reference = reference
        self._candidates = candidates
        self._signature = signature
        self._policy = policy
        self._options = options
        self._decides = bool(options.op_types & DISCRETE)
        self._measurer = GapMeasurer(signature, policy, options.fidelity)
        self._classifier = DomainClassifier(
            measurer=self._measurer,
            policy=policy,
            rerun=Rerun(answer=self._answer, compare=self._compare_without_notes),
            half=options.half,
            decides=self._decides,
            orders=bool(options.op_types & ORDERING),
            masks=options.masks,
        )
        self._confirmed: Counter[tuple[str, str, Verdict]] = Counter()
        names = [output.name for output in signature.outputs]
        self.doubts = Doubts(reference, names, options.affords)
        self.sets = open_sets(
            names, options.op_types, policy, lambda: reference.run(reference.example())
        )
        """A detector's outputs, whose rows are compared as sets; None for other models."""
        self.answers = Answers(names)
        self.plain: set[str] = set()
        """The cases of ordinary values."""

    @property
    def most_reruns(self) -> int:
        """How many runs of the reference it may take to confirm one case."""
        if self._decides:
            return RERUNS + LOUD_RERUNS
        return RERUNS

    def run(self, case: Case) -> Outcome:
        """Compare all outputs on all backends."""
        begun = time.perf_counter()
        reference = self._answer(case)
        shared_s = (time.perf_counter() - begun) / max(len(self._candidates), 1)
        outcome = Outcome(reference=reference)
        self.answers.add(case, reference.reference)
        if case.ordinary:
            self.plain.add(case.name)
        for candidate in self._candidates:
            begun = time.perf_counter()
            for gap in self._compare(reference, candidate, outcome.notes):
                if gap.output in self.doubts.random:
                    gap = replace(gap, void=Void.RANDOM)
                outcome.gaps.append(gap)
                if case.ordinary:
                    self._measurer.learn_scale(gap)
            outcome.seconds[candidate.backend] = shared_s + time.perf_counter() - begun
        return outcome

    def bias(self, case: Case, graph: Candidate) -> dict[str, float]:
        """How far the graph's own arithmetic, evaluated in float64, is from the truth: by output, in units of the noise."""
        reference = self._answer(case)
        reference.confirm()
        share = 1.0
        if self._options.half is not None:
            share = _HALF_BIAS_SHARE
        biases = {}
        outputs = self._aligned(reference, graph.run(case.inputs)).outputs
        for place, output in enumerate(outputs):
            if reference.truth[place] is None or self._signature.outputs[place].dtype == "float64":
                continue  # no truth is wider than float64
            comparison = Comparison(
                reference=reference, candidate=graph, place=place, output=output
            )
            gap = self._measurer.measure(comparison)
            if gap.compared and gap.noise_kind in (NoiseKind.DOUBLE, NoiseKind.PROMOTED):
                biases[gap.output] = share * gap.noise_ratio
        return biases

    def _answer(self, case: Case) -> CaseReference:
        """The reference's side of one case: its answer, the truth where that is believed, and a first estimate of the noise."""
        start = time.perf_counter()
        outputs = self._run_reference(case.inputs)
        seconds = time.perf_counter() - start
        rows = None if self.sets is None else self.sets.open(outputs)
        truth: Sequence[Array | None] | None = self._true_answer(case.inputs, rows)
        try:
            if not self.doubts.check(case, outputs, truth, seconds):
                truth = None
        except NotExamined as why:
            raise ReferenceRefused(str(why)) from why
        reference = CaseReference(
            self._reference,
            case,
            outputs,
            truth or [None] * len(outputs),
            seed=self._options.seed,
            half=self._options.half,
        )
        reference.rows = rows
        reference.estimate()
        reference.seconds = seconds
        if self._options.fidelity is not None:
            reference.simulated = self._options.fidelity.simulate(case)
        return reference

    def _true_answer(
        self, inputs: Mapping[str, Array], rows: CaseRows | None
    ) -> list[Array] | None:
        truth = self._reference.truth(inputs)
        if truth is None or rows is None:
            return truth
        return rows.align(truth)

    def _run_reference(self, inputs: Mapping[str, Array]) -> list[Array]:
        try:
            outputs = self._reference.run(inputs)
        except Exception as why:  # whatever the user's module raises: it does not take this input
            raise ReferenceRefused(f"{type(why).__name__}: {why}") from why
        if len(outputs) != len(self._signature.outputs):
            raise ReferenceRefused(
                f"the reference returns {len(outputs)} outputs here and {len(self._signature.outputs)} for the example"
            )
        return outputs

    def _compare(
        self, reference: CaseReference, candidate: Candidate, notes: list[Note]
    ) -> list[Gap]:
        """The gaps of all outputs of one candidate, and notes on those of an odd domain.

        1. Run the candidate; its refusal is a gap of every output.
        2. Measure each output.
        3. Confirm a gap that looks suspicious, if the budget allows it, and look for its domain.
        """
        case = reference.case
        try:
            outputs = candidate.run(case.inputs, isolated=_has_empty_input(case))  # 1
        except BackendError as why:
            if _is_out_of_memory(why) and candidate.answered:
                raise NoMemory(
                    f"`{candidate.backend}` would need more memory than there is at the moment"
                ) from why
            names = [output.name for output in self._signature.outputs]
            refused = Refusal(case=case, backend=candidate.backend, why=why.what)
            gaps, refusal_notes = refused_gaps(refused, names, reference.reference)
            notes += refusal_notes
            return gaps
        aligned = self._aligned(reference, outputs)
        gaps = self._gaps(reference, candidate, (aligned.outputs, outputs), notes)
        for place, (gap, output) in enumerate(zip(gaps, outputs, strict=True)):
            if output is not None and aligned.is_tied(gap, place):
                gaps[place] = replace(gap, domain=Domain.TIES)
                notes.append(note_of(gaps[place], reference.reference[place], output))
        return [aligned.describe(gap, place) for place, gap in enumerate(gaps)]

    def _aligned(self, reference: CaseReference, outputs: list[Array | None]) -> Aligned:
        """A detector's rows in the order of the reference's."""
        if self.sets is None or reference.rows is None:
            return Aligned(outputs=outputs)
        case = reference.case.name
        return self.sets.align(case, reference.rows, outputs, reference.ask_louder)

    def _gaps(
        self,
        reference: CaseReference,
        candidate: Candidate,
        answers: tuple[Sequence[Array | None], Sequence[Array | None]],
        notes: list[Note],
    ) -> list[Gap]:
        """Steps 2 and 3 of `_compare`, for outputs in the reference's order and in the candidate's own."""
        case = reference.case
        gaps = []
        for place, (output, answered) in enumerate(zip(*answers, strict=True)):
            comparison = Comparison(
                reference=reference,
                candidate=candidate,
                place=place,
                output=output,
                answered=answered,
            )
            gap = self._measurer.measure(comparison)  # 2
            if self._needs_confirmation(gap, case):  # 3
                if not self._confirmable(gap, reference):
                    gaps.append(gap)
                    continue
                gap = self._confirm(comparison)
            gaps.append(gap)
            if output is not None and (gap.domain is not None or gap.odd):
                notes.append(note_of(gap, reference.reference[place], output))
        return gaps

    def _compare_without_notes(
        self,
        reference: CaseReference,
        candidate: Candidate,
    ) -> list[Gap]:
        return self._compare(reference, candidate, [])

    def _needs_confirmation(self, gap: Gap, case: Case) -> bool:
        suspicious = self._measurer.is_suspicious(gap, share=RECHECK_SHARE)
        return suspicious and not self._known_already(gap, case)

    def _known_already(self, gap: Gap, case: Case) -> bool:
        """True where a few ordinary cases, confirmed, said what this one would say: re-runs cost more than all other passes together."""
        if case.domain is not None or gap.lost or gap.status is not Status.COMPARED:
            return False
        if self._is_established(gap, Verdict.DIVERGED):
            return True
        return self._is_established(gap, Verdict.DRIFT) and within_tolerance(gap, self._policy)

    def _is_established(self, gap: Gap, verdict: Verdict) -> bool:
        return self._confirmed[gap.backend, gap.output, verdict] >= _ENOUGH_CONFIRMED

    def _confirmable(self, gap: Gap, reference: CaseReference) -> bool:
        """Whether the re-runs fit into the budget. Where they don't: False for a gap that needs none, and `Unconfirmed` for one that would be an alarm.

        A gap that is plainly no rounding is confirmed by one re-run, however little time there is: there must be an answer to a wrong file.
        """
        needed = self.most_reruns
        if reference.confirmed:
            needed -= RERUNS
        if self._options.affords(needed, reference.seconds):
            return True
        if self._plainly_wrong(gap):
            reference.confirm(1)
            return True
        measurable = gap.status not in (Status.SHAPE, Status.MISSING)
        if measurable and self._measurer.is_suspicious(gap):
            raise Unconfirmed(
                f"output `{gap.output}` differs beyond noise, and there was no time to confirm it"
            )
        return False

    def _plainly_wrong(self, gap: Gap) -> bool:
        """Far beyond noise and beyond the tolerance, in a model that decides nothing: there no flipped decision explains it."""
        far = gap.noise_ratio > _PLAIN * self._policy.noise_limit
        may_count = gap.domain is None and not within_tolerance(gap, self._policy)
        return far and not self._decides and may_count

    def _confirm(self, comparison: Comparison) -> Gap:
        """Measure again after re-runs; a gap that is still suspicious gets its domain, if it has one."""
        comparison.reference.confirm()
        gap = replace(self._measurer.measure(comparison), confirmed=True)
        if self._measurer.is_suspicious(gap):
            gap = self._classifier.classify(gap, comparison)
        if comparison.case.ordinary:
            self._confirmed[gap.backend, gap.output, judge_gap(gap, self._policy)] += 1
        return gap


def _has_empty_input(case: Case) -> bool:
    return any(array.size == 0 for array in case.inputs.values())


def _is_out_of_memory(why: BackendError) -> bool:
    return isinstance(why, Refused) and why.code == "out-of-memory"
