"""Positions are counted otherwise: from the length instead of the mask, anew at every call, or off by one.

What it is: a decoder numbers its tokens. The module counts what the mask shows, and the file counts places (or the reverse), or
one of them is a place ahead, begins anew at every call, or stands still at the end of its table.

Why it happens: an exporter drops `position_ids` and derives them from the past's length; a wrapper passes positions that ignore
left padding; a table is read from 1.

How to see it: prompts without padding are right and left-padded ones are wrong from the first call on. The reference with its
positions counted in that way gives what the candidate gives.

How to fix it: count positions from the mask in both, or pass `position_ids` as an input.

Example: `position_ids = torch.arange(past, past + length)` beside a module that uses `attention_mask.cumsum(-1) - 1`.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from onnxproof.diagnosis.counterfactuals.masked_calls import begins_at_mask
from onnxproof.diagnosis.counterfactuals.module_run import module_session
from onnxproof.diagnosis.counterfactuals.table_index import POSITION_WORDS
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.reference.protocol import Reference
from onnxproof.results import Fix
from onnxproof.verification.rollout.state_names import words_of

TITLE = "positions are counted otherwise"
PRICE = 6
CODES = ("position", "masking")
_TOKEN_WORDS = frozenset({"id", "ids", "token", "tokens"})
"""Words of an input that counts nothing."""
_OFFSETS = (-1, 1, -2, 2)
"""How far off positions are tried."""
_MOST_COUNTS = 4
"""Counts of a module that are changed alone; the first ones are made before the layers (not measured)."""


def test(workbench: Workbench) -> Tried | str:
    """Count the reference's positions in each of the usual ways."""
    if module_session(workbench) is None:
        return "the reference is a file, which counts as it counts"
    for what, answer, code in _ways(workbench):
        if workbench.late:
            break
        tried = workbench.try_counterfactual(
            workbench.changed_answers(answer),
            f"{what}: with its positions counted so, the reference gives what the candidate gives",
            code=code,
            fix=Fix(kind="export", what="count positions alike in the module and in the export"),
        )
        if tried is not None:
            return tried
    return "no other way to count positions gives what the candidate gives"


Answer = Callable[[Mapping[str, Array]], list[Array] | None]
Way = tuple[str, Answer, str]
"""What is counted otherwise in words, the answers with it, and the code."""


def _ways(workbench: Workbench) -> Iterator[Way]:
    """Positions that are an input are moved; positions that are summed up from a mask are counted from the length, or moved."""
    reference = workbench.scene.reference
    named = [
        name
        for name, array in workbench.scene.case.inputs.items()
        if POSITION_WORDS & set(words_of(name)) and array.dtype.kind in "iu"
    ]
    for name in named:
        for offset in _OFFSETS:

            def moved(
                inputs: Mapping[str, Array], name: str = name, offset: int = offset
            ) -> list[Array] | None:
                positions = np.maximum(inputs[name] + offset, 0).astype(inputs[name].dtype)
                return _answers(lambda: reference.run({**inputs, name: positions}))

            yield f"`{name}` is off by {offset:+d}", moved, "position"
    yield from _other_counts(workbench)
    yield (
        "positions stand still at the end of the table in one, and begin anew in the other",
        partial(_with_other_end, reference),
        "position",
    )


def _other_counts(workbench: Workbench) -> Iterator[Way]:
    """All counts of the module changed, then each alone: a mask is counted as positions are, and only one may be wrong."""
    reference, case = workbench.scene.reference, workbench.scene.case
    code = "masking" if begins_at_mask(workbench) else "position"
    for what, change in _COUNTS:
        yield what, partial(_with_count, reference, change, None), code
    count = _counts_of(reference, case.inputs)
    if count < 2:
        return
    for place in range(min(count, _MOST_COUNTS)):
        for what, change in _COUNTS:
            yield (
                f"{what} (of the module's counts, number {place})",
                partial(_with_count, reference, change, place),
                code,
            )


def _counts_of(reference: Reference, inputs: Mapping[str, Array]) -> int:
    """How often the module counts places in one call."""
    from onnxproof.diagnosis.counterfactuals.counted_positions import CountOtherwise

    with CountOtherwise(lambda count, start: count) as mode:
        _answers(lambda: reference.run(inputs))
    return int(mode.seen)


def _with_count(
    reference: Reference, change: Any, only: int | None, inputs: Mapping[str, Array]
) -> list[Array] | None:
    from onnxproof.diagnosis.counterfactuals.counted_positions import CountOtherwise

    with CountOtherwise(change, only) as mode:
        answers = _answers(lambda: reference.run(inputs))
    return answers if mode.changed else None


def _with_other_end(reference: Reference, inputs: Mapping[str, Array]) -> list[Array] | None:
    from onnxproof.diagnosis.counterfactuals.counted_positions import EndOtherwise

    tokens = [array for name, array in inputs.items() if _is_of_tokens(name)]
    with EndOtherwise(tokens) as mode:
        answers = _answers(lambda: reference.run(inputs))
    return answers if mode.changed else None


def _is_of_tokens(name: str) -> bool:
    words = set(words_of(name))
    return bool(words & _TOKEN_WORDS) and not words & POSITION_WORDS


def _answers(run: Callable[[], list[Array]]) -> list[Array] | None:
    try:
        return run()
    except Exception:  # positions that the user's module does not have
        return None


def _by_length(count: Any, start: int) -> Any:
    import torch

    if start:
        return count
    places = torch.arange(1, count.shape[-1] + 1, dtype=count.dtype)
    return places.expand_as(count).clone()


def _only_behind_a_past(step: int) -> Callable[[Any, int], Any]:
    return lambda count, start: count + step * (start > 0)


_COUNTS: tuple[tuple[str, Callable[[Any, int], Any]], ...] = (
    ("positions are counted from the length, and not from the mask", _by_length),
    ("every call counts its positions from zero", lambda count, start: count - start),
    ("with a past, positions are one too large", _only_behind_a_past(1)),
    ("with a past, positions are one too small", _only_behind_a_past(-1)),
    ("positions are one too large", lambda count, start: count + 1),
    ("positions are one too small", lambda count, start: count - 1),
)
