"""Positions are counted otherwise: from the length instead of the mask, or off by one.

What it is: a decoder numbers its tokens. The module counts what the mask shows, and the file counts places (or the reverse), or
one of them is a place ahead.

Why it happens: an exporter drops `position_ids` and derives them from the past's length; a wrapper passes positions that ignore
left padding; a table is read from 1.

How to see it: prompts without padding are right and left-padded ones are wrong from the first call on. The reference with its
positions counted in that way gives what the candidate gives.

How to fix it: count positions from the mask in both, or pass `position_ids` as an input.

Example: `position_ids = torch.arange(past, past + length)` beside a module that uses `attention_mask.cumsum(-1) - 1`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from onnxproof.diagnosis.counterfactuals.module_run import module_session
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.results import Fix
from onnxproof.verification.rollout.state_names import words_of

TITLE = "positions are counted otherwise"
PRICE = 6
_WORDS = frozenset({"pos", "position", "positions"})
_OFFSETS = (-1, 1, -2, 2)
"""How far off positions are tried."""


def test(workbench: Workbench) -> Tried | str:
    """Count the reference's positions in each of the usual ways."""
    if module_session(workbench) is None:
        return "the reference is a file, which counts as it counts"
    for what, answer in _ways(workbench):
        if workbench.late:
            break
        tried = workbench.try_counterfactual(
            workbench.changed_answers(answer),
            f"{what}: with its positions counted so, the reference gives what the candidate gives",
            fix=Fix(kind="export", what="count positions alike in the module and in the export"),
        )
        if tried is not None:
            return tried
    return "no other way to count positions gives what the candidate gives"


Answer = Callable[[Mapping[str, Array]], list[Array] | None]


def _ways(workbench: Workbench) -> Iterator[tuple[str, Answer]]:
    """Positions that are an input are moved; positions that are summed up from a mask are counted from the length, or moved."""
    reference = workbench.scene.reference
    named = [
        name
        for name, array in workbench.scene.case.inputs.items()
        if _WORDS & set(words_of(name)) and array.dtype.kind in "iu"
    ]
    for name in named:
        for offset in _OFFSETS:

            def moved(
                inputs: Mapping[str, Array], name: str = name, offset: int = offset
            ) -> list[Array] | None:
                positions = np.maximum(inputs[name] + offset, 0).astype(inputs[name].dtype)
                return _answers(lambda: reference.run({**inputs, name: positions}))

            yield f"`{name}` is off by {offset:+d}", moved
    for what, change in _COUNTS:

        def counted(
            inputs: Mapping[str, Array], change: Callable[[Any], Any] = change
        ) -> list[Array] | None:
            from onnxproof.diagnosis.counterfactuals.counted_positions import CountOtherwise

            with CountOtherwise(change) as mode:
                answers = _answers(lambda: reference.run(inputs))
            return answers if mode.changed else None

        yield what, counted


def _answers(run: Callable[[], list[Array]]) -> list[Array] | None:
    try:
        return run()
    except Exception:  # positions that the user's module does not have
        return None


def _by_length(sums: Any) -> Any:
    import torch

    places = torch.arange(1, sums.shape[-1] + 1, dtype=sums.dtype)
    return places.expand_as(sums).clone()


_COUNTS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("positions are counted from the length, and not from the mask", _by_length),
    ("positions are one too large", lambda sums: sums + 1),
    ("positions are one too small", lambda sums: sums - 1),
)
