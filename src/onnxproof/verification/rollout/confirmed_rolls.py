"""A rollout that counts: what looks wrong is run again beside other roundings of the reference."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from onnxproof.results.rollouts import Rollout
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout.rolling import Rolled, Roller, Sides
from onnxproof.verification.rollout.schedules import Schedule
from onnxproof.verification.rollout.sides import LoopSide

RERUNS = 3
"""Other roundings of the reference before a rollout raises an alarm (not measured)."""
_FAR = 50.0
"""Times the limit from which on one of them is enough (not measured)."""
_CONFIRMING_S = 30.0
"""Seconds that a confirmation has at least, whatever is left of the budget (not measured)."""
_AFTER_BAD = 2
"""Calls after the first bad one that a confirmation still runs."""


def roll_confirmed(
    roller: Roller,
    schedule: Schedule,
    sides: Sides,
    deadline: Deadline,
    reruns: Callable[[int], Sequence[LoopSide]],
) -> Rolled:
    """A rollout; one that looks wrong is run again beside other roundings of the reference before it counts."""
    rolled = roller.roll(schedule, sides, deadline)
    if rolled.first_bad is None:
        return rolled
    limit = Deadline.after(max(deadline.left, _CONFIRMING_S))
    if sides.allowed_db is not None:  # no rounding is near a quality limit
        shortened = schedule.cut(rolled.first_bad + 1)
        return _merged(rolled, roller.roll(shortened, sides, limit, probe=True))
    far = rolled.bad_ratio > _FAR * roller.policy.noise_limit
    again = replace(sides, noisy=(*sides.noisy, *reruns(1 if far else RERUNS)))
    shortened = schedule.cut(rolled.first_bad + 1 + _AFTER_BAD)
    confirmed = roller.roll(shortened, again, limit, probe=True)
    if confirmed.first_bad is None and shortened.lengths != schedule.lengths:
        confirmed = roller.roll(schedule, again, limit, probe=True, stop_when_bad=_AFTER_BAD)
    if limit.passed and confirmed.steps <= rolled.first_bad:
        return rolled  # the call was not reached again: what was seen stands
    if confirmed.first_bad is None:
        return confirmed
    return _merged(rolled, confirmed)


def _merged(rolled: Rolled, confirmed: Rolled) -> Rolled:
    """The confirmed first bad call, with what the longer run measured along the way."""
    if confirmed.first_bad is None:
        return rolled
    rolled.first_bad, rolled.guilty = confirmed.first_bad, confirmed.guilty
    rolled.file = confirmed.file
    return rolled


def summarize(rolled: Rolled, backend: str) -> Rollout:
    """What a proof says of a rollout."""
    language = rolled.language
    what = ""
    if rolled.first_bad is not None:
        what = rolled.guilty[1] if rolled.guilty is not None else "cache"
    return Rollout(
        schedule=rolled.schedule.name,
        backend=backend,
        steps=rolled.steps,
        first_bad_step=rolled.first_bad,
        first_bad_length=rolled.first_bad_length,
        what=what,
        kl=language.share(language.kl),
        kl_noise=language.share(language.kl_noise),
        agreement=language.share(language.same),
        excused=language.share(language.tied),
        first_token_apart=language.first_apart,
        apart_by_tie=language.apart_by_tie,
        tokens=tuple(language.tokens),
        along=tuple(rolled.along),
    )
