"""The time of one verification, shared by its stages: runtimes examined, cases, explanation.

`budget_s` is the time for all of it; only opening the runtimes comes on top, since a browser or a new virtual environment may
take minutes. While nothing is wrong the cases may use four fifths of it, and all of it where no explanation was asked for. From
the first fault on they may use half, so that the other half is left to say where and why. What has begun is ended, so the
budget may be passed by a forward pass; nothing begins that is known to take longer than that.
"""

import time

from onnxproof.results import Finding, judging
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system.deadline import Deadline

SHARE_FOR_CASES = 0.8
SHARE_WITH_FAULT = 0.5
"""Of the budget: what the cases may use while nothing is wrong, and from the first fault on (not measured)."""
_SLACK = 0.1
"""Of the budget that may be passed: half of the 20 % that are promised, since a prediction is not a measurement."""
_EXTENSION, _LEAST_EXTENSION_S = 0.2, 2.0
"""How far the budget is extended for what a verdict can't do without: by this share of it, or by this many seconds (not measured)."""
_REFERENCE = ("torch", "ort-reference")
_RERUN = ("torch-rerun", "ort-rerun", *_REFERENCE)
"""Names by which the clock counts passes of the reference, and re-runs of it."""


class Budget:
    """How much time there is, and what it is enough for."""

    def __init__(
        self,
        seconds: float,
        clock: Clock,
        *,
        explained: bool,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._explained = explained
        self._start = clock.started

    def extend(self, seconds: float) -> None:
        """Leave out time that the runtimes took to start."""
        self._start += seconds

    @property
    def elapsed(self) -> float:
        """Seconds of it that are gone, also beyond its end."""
        return time.perf_counter() - self._start

    @property
    def end(self) -> Deadline:
        """The end of all of it."""
        return Deadline(self._start + self.seconds)

    def passed(self, share: float) -> bool:
        """Whether so much of it is used up."""
        return Deadline(self._start + self.seconds * share).passed

    def cases(self, *, faulty: bool) -> Deadline:
        """The end of the cases; an earlier one once a fault is to be explained."""
        if not self._explained:
            return self.end
        share = SHARE_FOR_CASES
        if faulty:
            share = SHARE_WITH_FAULT
        return Deadline(self._start + self.seconds * share)

    def affords(self, passes: float) -> bool:
        """Whether so many more forward passes of the reference still fit."""
        return self._with_slack().allows(passes * self.pass_s)

    def affords_reruns(self, count: int, least_s: float = 0.0) -> bool:
        """The same for runs of the reference with other roundings, which cost more than plain ones, and on a large case at least so much each."""
        return self._with_slack().allows(count * max(least_s, self._mean(_RERUN)))

    def affords_case(self, reruns: int) -> bool:
        """Whether another case fits even if it has to be confirmed: one that differs and can't be confirmed would spoil the verdict on those before it."""
        return self._with_slack().allows(2 * self.pass_s + reruns * self._mean(_RERUN))

    @property
    def far_beyond(self) -> bool:
        """Whether not even what a verdict can't do without may begin: the budget is extended for it as for the floor."""
        extension_s = max(_EXTENSION * self.seconds, _LEAST_EXTENSION_S)
        return Deadline(self._start + self.seconds + extension_s).passed

    @property
    def pass_s(self) -> float:
        """Seconds of one forward pass of the reference, as far as is known."""
        return self._mean(_REFERENCE)

    def not_confirmed(self, case: str, reruns: int) -> Finding:
        """The finding on a case that differs, and that no time was left to confirm."""
        enough = 2 * (reruns + 2) * self.pass_s + 1
        return Finding(
            code=judging.NOT_CONFIRMED,
            voids=True,
            what=f"`{case}` differs beyond noise, and the budget of {self.seconds:g} s left no time to confirm it: not enough was compared",
            help=f"give at least `--budget {enough:.0f}`: one forward pass takes {self.pass_s:.2g} s, and a difference is confirmed by up to {reruns} more",
        )

    def _with_slack(self) -> Deadline:
        return Deadline(self._start + (1 + _SLACK) * self.seconds)

    def _mean(self, names: tuple[str, ...]) -> float:
        """Of the first of these that ran; the mean of many, so that a slow first call is forgotten."""
        for name in names:
            passes = self._clock.passes.get(name)
            if passes:
                return self._clock.seconds[name] / passes
        return 0.0


def not_reached(what: str) -> Finding:
    """What the end of the budget left out."""
    return Finding(
        code="budget-ended",
        what=f"{what}: no time was left for it",
        help="give more time with `--budget`",
    )
