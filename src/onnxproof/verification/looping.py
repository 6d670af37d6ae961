"""The loop of a verification: its rollouts, and what they say about single calls."""

from collections.abc import Callable, Iterator, Sequence

from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, Finding, Gap, Rollout, Signature, judging
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.evidence import Request
from onnxproof.verification.observations import Observations
from onnxproof.verification.rollout import schedules
from onnxproof.verification.rollout.driving import Driven
from onnxproof.verification.rollout.recorded import RecordedRollout
from onnxproof.verification.rollout.stage import (
    Context,
    Limits,
    LoopRunner,
    Rollouts,
    unread_states,
)

_SHARE_FOR_ROLLOUTS, _MOST_FOR_ROLLOUTS = 0.35, 0.6
"""Of the budget that all rollouts may take, and that those may which every loop is owed (not measured)."""
_GUILTY_CALLS = 3
"""Calls of rollouts that went wrong and are compared as cases."""


class Looping:
    """What is known of a model's loop; nothing where it has none."""

    def __init__(
        self,
        request: Request,
        reference: Reference,
        signature: Signature,
        file: OnnxFile,
        candidates: Sequence[Candidate],
    ) -> None:
        self._request, self._reference, self._signature = request, reference, signature
        self._file, self._candidates = file, candidates
        self._rolled = Rollouts()
        self._runner: LoopRunner | None = None
        self._unread: dict[str, set[str]] = {}

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """What was rolled."""
        return tuple(self._rolled.rollouts)

    @property
    def findings(self) -> list[Finding]:
        """How the loop was understood, and what it showed."""
        findings = list(self._rolled.findings)
        if not self._rolled.complete:
            findings.append(not_reached("some rollouts were not run"))
        return findings

    @property
    def unread_findings(self) -> list[Finding]:
        """States that differed in single calls where no later call reads them."""
        known = {finding.code for finding in self._rolled.findings}
        return [
            finding
            for backend, names in self._unread.items()
            if (finding := unread_states(backend, sorted(names))).code not in known
        ]

    def roll_out(
        self,
        driven: Driven,
        observed: Observations,
        budget: Budget,
        announce: Callable[[str], None],
    ) -> list[Case]:
        """Roll every schedule that the time allows; gives the calls that are wrong by themselves."""
        request = self._request
        only = [schedules.parse(name) for name in request.only if name.startswith(schedules.PREFIX)]
        if request.only and not only:
            return []
        context = Context(
            reference=self._reference,
            signature=self._signature,
            file=self._file,
            policy=request.policy,
            seed=request.seed,
            steps=request.steps,
            announce=announce,
        )
        limits = Limits(
            usual=budget.end.within(request.budget_s * _SHARE_FOR_ROLLOUTS),
            owed=budget.end.within(request.budget_s * _MOST_FOR_ROLLOUTS),
        )
        self._runner = LoopRunner(driven, context)
        self._rolled = self._runner.run(list(self._candidates), limits, only)
        observed.add_rollout(self._rolled.gaps)
        return self._rolled.cases[:_GUILTY_CALLS]

    def record(self, most_bytes: int) -> Iterator[RecordedRollout]:
        """Short rollouts of the reference for a bundle."""
        if self._runner is not None and self._candidates:
            yield from self._runner.record(self.rollouts, self._candidates[0], most_bytes)

    @property
    def states_are_own(self) -> bool:
        """Whether every file's own loop is right with states in a layout of its own."""
        layouts = self._rolled.layouts
        return self._rolled.right and all(
            layouts.get(candidate.backend) for candidate in self._candidates
        )

    def without_unread_states(self, case: Case, gaps: list[Gap]) -> list[Gap]:
        """The gaps without those of states that differ where nobody reads them: the loop goes on from there, and is right."""
        if self._runner is None or not self._rolled.right:
            return gaps
        policy = self._request.policy
        bad = [gap for gap in gaps if judging.severity(gap, policy)[0] > 0]
        for candidate in self._candidates:
            outputs = {gap.output for gap in bad if gap.backend == candidate.backend}
            if not outputs or not outputs <= self._runner.states:
                continue
            if self._runner.goes_on_right(case, candidate):
                self._unread.setdefault(candidate.backend, set()).update(outputs)
                gaps = [
                    gap
                    for gap in gaps
                    if gap.backend != candidate.backend or gap.output not in outputs
                ]
        return gaps
