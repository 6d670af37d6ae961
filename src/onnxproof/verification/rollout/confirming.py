"""Is it a loop? The reference is asked: its own loop against its own pass over everything at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from onnxproof.reference.protocol import Reference
from onnxproof.verification.rollout.driving import Drive, Driven
from onnxproof.verification.rollout.feeding import Feeder
from onnxproof.verification.rollout.model_sides import ModelSide, reference_side
from onnxproof.verification.rollout.schedules import Schedule

Array = np.ndarray[Any, Any]
_CALLS = (4, 1, 2)
"""Tokens or frames of the calls that are held against one pass over all of them."""
_NEAR = 1e-3
"""Of an answer's size: as near as rounding leaves two orders of summation (a wrong state is off by 0.1 and more in the loops of the tests)."""


def confirms(driven: Driven, reference: Reference, outputs: tuple[str, ...]) -> bool | None:
    """Whether the reference's own loop gives what one pass gives; None where it can't be asked."""
    if driven.freedom.chunk is not None or driven.chunk is None:
        return None
    batch = driven.freedom.batches[0]
    whole = Schedule(batch=batch, lengths=(sum(_CALLS),))
    side = reference_side(reference, driven, outputs)
    try:
        at_once, feeds = _one_pass(driven, side, whole)
        piecewise = _by_calls(driven, side, feeds, batch)
    except Exception:  # the user's own module: it does not take such a call
        return None
    return _is_near(at_once, piecewise)


def _one_pass(
    driven: Driven, side: ModelSide, whole: Schedule
) -> tuple[dict[str, Array], dict[str, Array]]:
    side.reset(whole.batch)
    feeds = Feeder(driven, whole).feeds(0, whole.total, driven.held(side.states), None)
    _keep_rows(driven, feeds)
    return side.step(feeds), feeds


def _by_calls(
    driven: Driven, side: ModelSide, whole: Mapping[str, Array], batch: int
) -> dict[str, Array]:
    """The answers of the last call."""
    schedule = Schedule(batch=batch, lengths=_CALLS)
    feeder = Feeder(driven, schedule)
    side.reset(batch)
    begin, answers = 0, {}
    for length in _CALLS:
        end = begin + length
        feeds = feeder.feeds(begin, end, driven.held(side.states), None)
        for name, drive in driven.drives.items():
            if drive in (Drive.TOKENS, Drive.CHUNK, Drive.CONTEXT):
                feeds[name] = _part(whole[name], feeds[name].shape, begin, end)
        _keep_rows(driven, feeds)
        answers = side.step(feeds)
        begin = end
    return answers


def _keep_rows(driven: Driven, feeds: dict[str, Array]) -> None:
    """Let every row go on with its own states: one pass knows no other."""
    for name, drive in driven.drives.items():
        if drive is Drive.ROWS:
            feeds[name] = np.arange(len(feeds[name]), dtype=feeds[name].dtype)


def _part(array: Array, shape: tuple[int, ...], begin: int, end: int) -> Array:
    """What a call gets of an input of the whole pass: a part of the axis that is longer there."""
    for axis, (size, wanted) in enumerate(zip(array.shape, shape, strict=True)):
        if size != wanted:
            return np.take(array, np.arange(begin, end), axis)
    return array


def _is_near(at_once: Mapping[str, Array], piecewise: Mapping[str, Array]) -> bool:
    compared = False
    for name, last in piecewise.items():
        whole = _ending(at_once[name], last.shape)
        if whole is None or last.dtype.kind != "f" or not last.size:
            continue
        size = float(np.sqrt(np.mean(np.square(whole.astype(np.float64))))) or 1.0
        difference = np.abs(whole.astype(np.float64) - last.astype(np.float64)).max()
        if not difference <= _NEAR * size:
            return False
        compared = True
    return compared


def _ending(array: Array, shape: tuple[int, ...]) -> Array | None:
    """The last part of an answer along the one axis in which it is longer."""
    if array.ndim != len(shape):
        return None
    longer = [axis for axis, size in enumerate(array.shape) if size != shape[axis]]
    if len(longer) > 1:
        return None
    if not longer:
        return array
    axis = longer[0]
    size = array.shape[axis]
    return np.take(array, np.arange(size - shape[axis], size), axis)


def starting(driven: Driven, reference: Reference, names: tuple[str, ...]) -> Driven | None:
    """With empty states, or where the reference refuses these or answers with NaN, with states like the example's."""
    for seeded in (False, True):
        trial = replace(driven, seeded=seeded)
        side = reference_side(reference, trial, names)
        schedule = Schedule(batch=trial.freedom.batches[0], lengths=(trial.consumes,) * 2)
        rolled = _reference_alone(trial, side, schedule)
        if rolled:
            return trial
    return None


def _reference_alone(driven: Driven, side: ModelSide, schedule: Schedule) -> bool:
    """Whether the reference takes these calls and gives numbers."""
    feeder = Feeder(driven, schedule)
    begin = 0
    try:
        side.reset(schedule.batch)
        for length in schedule.lengths:
            held = driven.held(side.states)
            answers = side.step(feeder.feeds(begin, begin + length, held, None))
            begin += length
    except Exception:  # the user's own module
        return False
    floats = [array for array in answers.values() if array.dtype.kind == "f"]
    return all(np.isfinite(array).all() for array in floats)
