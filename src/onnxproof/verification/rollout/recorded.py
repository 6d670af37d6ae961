"""Short rollouts to be kept: what every call was fed, what the reference and the truth answered, and the noise of that."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.numerics.measure import Noise
from onnxproof.results.rollouts import Rollout
from onnxproof.system.deadline import Deadline
from onnxproof.verification.rollout import schedules
from onnxproof.verification.rollout.answers import Answers, Arrays
from onnxproof.verification.rollout.driving import Driven
from onnxproof.verification.rollout.rolling import Record, Roller, Sides
from onnxproof.verification.rollout.schedules import Schedule
from onnxproof.verification.rollout.sides import LoopSide

Array = np.ndarray[Any, Any]
CALLS = 8
"""Calls of a kept rollout; what a longer one crosses is left to the verification (not measured)."""
MOST = 2
"""Rollouts that are kept: their re-runs cost more than all cases together (`make bench-bundle`)."""
LEAST_CALLS = 2
"""A rollout of one call is a case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAnswer:
    """What the reference answers at the places that are real."""

    reference: Array
    truth: Array | None
    noise: Noise


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call without its states, which everybody has from the call before."""

    inputs: Mapping[str, Array]
    real: Array | None
    """Rows by tokens: which places are real; None where all of them are."""
    answers: Mapping[str, RecordedAnswer]

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        arrays = [*self.inputs.values()]
        for answer in self.answers.values():
            arrays.append(answer.reference)
            if answer.truth is not None:
                arrays.append(answer.truth)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRollout:
    """One rollout of the reference, to be rolled by any candidate in its own loop."""

    schedule: str
    lengths: tuple[int, ...]
    states: Mapping[str, str]
    """The output that is an input of the next call, by the reference's names."""
    initial: Mapping[str, Array]
    """The states before the first call, as the file takes them."""
    calls: tuple[RecordedCall, ...]
    allowed_db: float | None = None
    """Of a quantized file: the ratio of signal to error that still passes."""
    logits: str = ""
    """The answer that the next token is chosen from, where there is one."""

    @property
    def size(self) -> int:
        """Bytes of its tensors."""
        states = sum(array.nbytes for array in self.initial.values())
        return states + sum(call.size for call in self.calls)


Recorder = Callable[[int], Iterator[RecordedRollout]]
"""Records rollouts that take at most so many bytes together."""


def record(
    driven: Driven,
    roller: Roller,
    sides: Sides,
    stand_in: LoopSide,
    rollouts: Sequence[Rollout],
    most_bytes: int,
) -> Iterator[RecordedRollout]:
    """The reference's side of these rollouts, shortened, as long as they fit; those that went wrong first. `stand_in` is rolled in the candidate's place."""
    ordered = sorted(rollouts, key=lambda rollout: rollout.first_bad_step is None)
    for rollout in ordered[:MOST]:
        schedule = schedules.parse(rollout.schedule).cut(CALLS)
        recorded = _record(driven, roller, sides, stand_in, schedule, most_bytes)
        if recorded is not None:
            most_bytes -= recorded.size
            yield recorded


def _record(
    driven: Driven,
    roller: Roller,
    sides: Sides,
    stand_in: LoopSide,
    schedule: Schedule,
    most_bytes: int,
) -> RecordedRollout | None:
    sides.candidate.reset(schedule.batch)
    states = dict(sides.candidate.states)
    calls: list[RecordedCall] = []
    alone = replace(sides, candidate=stand_in)  # no candidate is run
    roller.roll(schedule, alone, Deadline.never(), record=_appending(calls, sides))
    left = most_bytes - sum(array.nbytes for array in states.values())
    sizes = itertools.accumulate(call.size for call in calls)
    calls = [call for call, size in zip(calls, sizes, strict=True) if size <= left]
    if len(calls) < LEAST_CALLS:
        return None
    schedule = schedule.cut(len(calls))
    return RecordedRollout(
        schedule=schedule.name,
        lengths=schedule.lengths,
        states={pair.output: pair.input for pair in driven.loop.states},
        initial=states,
        calls=tuple(calls),
        allowed_db=sides.allowed_db,
        logits=driven.logits or "",
    )


def _appending(calls: list[RecordedCall], sides: Sides) -> Record:
    def append(feeds: Arrays, answers: Answers, real: Array) -> None:
        kept = {}
        for name in answers.reference:
            values = answers.of(name, real)
            kept[name] = RecordedAnswer(
                reference=values.reference, truth=values.truth, noise=values.noise(sides.kind)
            )
        shown = None if real.all() else real
        calls.append(RecordedCall(inputs=dict(feeds), real=shown, answers=kept))

    return append
