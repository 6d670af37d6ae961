"""When the cases end: the verdict is known, or the time is over and nothing of the floor is missing."""

from collections.abc import Iterable, Iterator

from onnxproof.inputs.user_data import UserData
from onnxproof.results import Case
from onnxproof.system.deadline import Deadline
from onnxproof.verification.budget import Budget
from onnxproof.verification.case_runner import Trial
from onnxproof.verification.coverage_floor import Floor
from onnxproof.verification.evidence import Request
from onnxproof.verification.observations import LARGE, Observations
from onnxproof.verification.open_backends import Fleet

PASSES_OF_A_CASE = 2
"""Forward passes of the reference that one case needs: its answer and the truth."""
_PATIENCE = 1 / 6
"""Of the budget, after which two cases that differ beyond tolerance are enough: the verdict is known, and the user is waiting."""
_MOST_OF_BUDGET = 1 / 6
"""Of the budget that one case may be expected to take. Not measured."""
_GROWTH = 4
"""Times the elements of the largest case so far, up to which a case is not expected to cost much more. Not measured."""
_DATA_OWED = 8
"""Cases of the user's data that a quantized file is judged by at least, however short the time."""


class Pacing:
    """Decides case by case whether it is run, skipped, or the last."""

    def __init__(
        self,
        request: Request,
        observed: Observations,
        *,
        budget: Budget,
        fleet: Fleet,
        floor: Floor,
        data: UserData,
        trial: Trial,
    ) -> None:
        self._request, self._observed, self._budget = request, observed, budget
        self._fleet, self._floor, self._data, self._trial = fleet, floor, data, trial
        self.cut_short = False
        """Whether cases were left out for time."""
        self._start = budget.elapsed
        """What came before the first case is not the cases' fault."""
        self._largest = (0, 0.0)
        """Elements and seconds of the largest case so far."""

    @property
    def verdict_is_known(self) -> bool:
        """True when no further case can change the verdict."""
        if self._fleet.done or self._fleet.hung or self._observed.unconfirmed:
            return True
        if self._request.first and self._observed.diverged:
            return True
        several = self._observed.diverged >= 2 and len(self._request.backends) == 1
        return several and self._budget.passed(_PATIENCE)

    @property
    def over(self) -> bool:
        """True when no further case begins, whatever the floor still lacks."""
        return self.verdict_is_known or self._late

    @property
    def enough(self) -> bool:
        """True when no further case begins, and nothing of the floor is missing or can still be had."""
        if self.verdict_is_known:
            return True
        if not self._late or self._data.owed(self._observed.sizes):
            return False
        late_s = self._budget.elapsed - max(self._request.budget_s, self._start)
        return self._floor.beyond(late_s, self._request.budget_s, self._longest_case_s)

    def paced(self, planned: Iterable[Case], *, quantized: bool) -> Iterator[Case]:
        """The cases that the time allows: one at least, then until enough was compared; the user's data is owed longer."""
        observed = self._observed
        for case in planned:
            owed = self.owes_data(case, quantized=quantized)
            if (observed.gaps or observed.dropped) and self.enough:
                self.cut_short = True
                if not owed:
                    return
                if case.group != "data":
                    continue
            elif observed.gaps and self.skips(case) and not owed:
                continue
            yield case

    def skips(self, case: Case) -> bool:
        """Whether a case gives way to those that the floor still needs."""
        return self._floor.skips(case, self.cases_end.left, self._longest_case_s)

    def owes_data(self, case: Case, *, quantized: bool) -> bool:
        """True while a quantized file's quality was not asked on the user's data.

        Counted, since a busy machine must not change what a file is judged by.
        """
        if not quantized or self._request.subject.data is None or self._fleet.done:
            return False
        asked = {gap.case for gap in self._observed.gaps if gap.group == "data"}
        return len(asked) < _DATA_OWED and case.group in ("ordinary", "data")

    def is_too_expensive(self, elements: int) -> bool:
        """True when a case much larger than any so far may take too much of the budget."""
        largest, seconds = self._largest
        growth = elements / max(largest, 1)
        if not largest or growth <= _GROWTH:
            return False
        power = 1 if elements < LARGE else 2
        return seconds * growth**power > self._request.budget_s * _MOST_OF_BUDGET

    def took(self, elements: int, seconds: float) -> None:
        """Remember what a case cost."""
        self._largest = max(self._largest, (elements, seconds))

    @property
    def cases_end(self) -> Deadline:
        """The end of the cases' share of the budget."""
        return self._budget.cases(faulty=self._observed.faulty)

    @property
    def _late(self) -> bool:
        if not self._budget.affords_case(self._trial.most_reruns):
            return True
        return not self.cases_end.allows(PASSES_OF_A_CASE * self._budget.pass_s)

    @property
    def _longest_case_s(self) -> float:
        return self._largest[1]
