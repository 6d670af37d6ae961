"""What the cases of one verification gave so far, and which of them are worth a closer look."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onnxproof.options import Policy
from onnxproof.results import Case, Domain, Dropped, Gap, Note, Verdict, judging
from onnxproof.verification.case_runner import Outcome

LARGE = 1 << 18
"""Elements of a case: assume quadratic cost above this size. Not measured."""
_SEARCHED = ("shapes", "masks", "ids", "distinct", "search")
"""Groups from which a search may start: from extreme values it only climbs to more extreme ones."""
_NATURAL = ("ordinary", "data", "shapes", "lengths")
"""Groups of ordinary values: among equal or extreme values a wrong node may look right by accident."""
_MOST_DIFFERING = 5
"""Cases that differ and are kept, so that an explanation can be tried on more than one."""
_MOST_AGREEING = 6
_MOST_AGREEING_OF_A_GROUP = 2
"""Cases that agree and are kept for the same purpose. Not measured."""
_MOST_NEAREST = 4
"""Cases from which a search may start."""
_NOTES_A_GROUP = 3
_NO_EXPLANATION = {Domain.EMPTY, Domain.MASKED}
"""Domains whose notes need no explanation."""


class Observations:
    """Gaps, notes and dropped cases; the witness of a fault; the cases that came nearest to one."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.gaps: list[Gap] = []
        self.notes: list[Note] = []
        self.dropped: list[Dropped] = []
        self.sizes: dict[str, dict[str, int]] = {}
        """The dims of every case that was compared."""
        self.unconfirmed: list[str] = []
        """Cases that differ, and for which no time was left to measure the noise again."""
        self.witness: Case | None = None
        self.noted: Case | None = None
        self.differing: list[Case] = []
        """A few cases that differ, of each domain."""
        self.agreeing: list[Case] = []
        """A few cases that agree, of different groups."""
        self.nearest: list[tuple[float, Case]] = []
        """The plain cases with the largest ratios, none of them beyond noise."""
        self.seconds: dict[str, dict[str, float]] = {}
        """What the cases took, by group and backend."""
        self._bad: dict[str, Verdict] = {}
        self._witness_rank: tuple[Any, ...] = ()

    @property
    def faulty(self) -> bool:
        """Whether any case differs beyond noise."""
        return bool(self._bad)

    @property
    def diverged(self) -> int:
        """The number of cases that differ beyond tolerance."""
        return sum(verdict is Verdict.DIVERGED for verdict in self._bad.values())

    def drop(self, case: Case, reason: str) -> None:
        """Keep the reason why a case was not compared."""
        self.dropped.append(Dropped(case=case.name, reason=reason))

    def add(self, case: Case, outcome: Outcome) -> float:
        """Keep what a case gave; returns how near it came to an alarm."""
        self.gaps += outcome.gaps
        self.sizes[case.name] = dict(case.sizes)
        self.notes += outcome.notes
        group_seconds = self.seconds.setdefault(case.group, {})
        for backend, seconds in outcome.seconds.items():
            group_seconds[backend] = group_seconds.get(backend, 0.0) + seconds
        domains = {note.domain for note in outcome.notes} - _NO_EXPLANATION
        if domains and self._tells_more(domains):
            self.noted = case
        return self.rank(case, outcome.gaps)

    def add_rollout(self, gaps: Sequence[Gap]) -> None:
        """Keep what a rollout gave; its witness is the guilty call, a case of its own."""
        self.gaps += gaps
        for gap in gaps:
            verdict = judging.judge_gap(gap, self._policy)
            if verdict in (Verdict.DRIFT, Verdict.DIVERGED):
                self._bad[gap.case] = judging.worse(verdict, self._bad.get(gap.case, verdict))

    def _tells_more(self, domains: set[Domain]) -> bool:
        """Ties on finite numbers tell more than a NaN that was put in."""
        if self.noted is None:
            return True
        return Domain.TIES in domains and self.noted.domain is not None

    def rank(self, case: Case, gaps: Sequence[Gap]) -> float:
        """Keep the best witness of a fault, and the few cases from which a search may start."""
        counted = [gap for gap in gaps if gap.domain is None]
        if not counted:
            return 0.0
        worst = max(counted, key=lambda gap: judging.severity(gap, self._policy))
        severity, ratio = judging.severity(worst, self._policy)
        if severity > 0:
            self._bad[case.name] = judging.judge_gap(worst, self._policy)
            self._keep_differing(case, worst, severity, ratio)
        elif severity == 0:
            self._keep_agreeing(case)
        if severity == 0 and self._may_start_search(case):
            ranked = sorted([*self.nearest, (ratio, case)], key=lambda pair: -pair[0])
            self.nearest = ranked[:_MOST_NEAREST]
        return ratio

    @staticmethod
    def _may_start_search(case: Case) -> bool:
        return case.domain is None and (case.ordinary or case.group in _SEARCHED)

    def _keep_differing(self, case: Case, worst: Gap, severity: float, ratio: float) -> None:
        plain = case.domain is None
        small = elements(case) < LARGE
        rank = (
            severity,
            plain and not worst.lost,
            worst.status.value == "compared",
            small,
            case.ordinary,
            case.group in _NATURAL,
            min(ratio, 1e6),
        )
        alike = sum(other.domain is case.domain for other in self.differing)
        if small and alike < _MOST_DIFFERING:
            self.differing.append(case)
        if self.witness is None or rank > self._witness_rank:
            self.witness, self._witness_rank = case, rank

    def _keep_agreeing(self, case: Case) -> None:
        alike = sum(other.group == case.group for other in self.agreeing)
        few = alike < _MOST_AGREEING_OF_A_GROUP and len(self.agreeing) < _MOST_AGREEING
        if few and elements(case) < LARGE:
            self.agreeing.append(case)

    def forget_witness(self) -> None:
        """A smaller case is about to take the witness's place."""
        self.witness, self._witness_rank = None, ()

    def add_bias(self, case: Case, biases: Mapping[str, float]) -> None:
        """Put the graph's own error in float64 into the gaps of a case, and rank it again."""
        self.gaps = [
            replace(gap, bias=biases.get(gap.output))
            if gap.case == case.name and gap.domain is None
            else gap
            for gap in self.gaps
        ]
        self.rank(case, [gap for gap in self.gaps if gap.case == case.name])

    def first_notes(self) -> Iterator[Note]:
        """The first few notes of each kind: the hundredth NaN tells nothing new."""
        seen: dict[tuple[str, ...], int] = {}
        for note in self.notes:
            key = (note.domain.value, note.backend, note.output)
            seen[key] = seen.get(key, 0) + 1
            if seen[key] <= _NOTES_A_GROUP:
                yield note


def elements(case: Case) -> int:
    """The number of elements of all inputs."""
    return sum(array.size for array in case.inputs.values())
