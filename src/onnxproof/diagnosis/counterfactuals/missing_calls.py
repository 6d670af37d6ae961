"""Several calls in a row that the file lacks: a soft cap (divide, tanh, multiply), a norm that is written out, a scaling with its offset."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Change,
    changed_calls,
    describe_call,
    pass_operand,
)
from onnxproof.diagnosis.counterfactuals.suspected_calls import (
    calls_from_same_line,
    suspected_calls,
    values_in_file,
)
from onnxproof.reference.traced_value import TracedValue

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

_MOST_CALLS = 8
"""Calls in a row that may be missing: a norm that is written out has six. Not measured."""


def try_missing_calls(workbench: "Workbench") -> "Tried | None":
    """Leave two or more calls in a row out of the module, and the same calls of every other block."""
    if workbench.located.module_session is None:
        return None
    for row in _rows_of_calls(workbench):
        for changes in _changes(workbench, row):
            names = ", ".join(f"`{entry.op}`" for entry in row)
            tried = workbench.try_counterfactual(
                changed_calls(workbench, changes),
                f"the module without {names} (from {describe_call(row[0])} on) gives what the candidate gives",
                code="missing-op",
            )
            if tried is not None:
                return tried
    return None


def _rows_of_calls(workbench: "Workbench") -> Iterator[list[TracedValue]]:
    """From each suspected call on, the calls that follow it and that the file lacks: two of them, three, and so on."""
    entries = workbench.located.traced_values
    in_file = values_in_file(workbench)
    for first in suspected_calls(workbench):
        row = [first]
        while len(row) < _MOST_CALLS:
            following = _only_reader(entries, row[-1])
            if following is None or following.place in in_file:
                break
            if not _keeps_shape(following, row[-1]):
                break
            row.append(following)
            yield list(row)


def _only_reader(entries: list[TracedValue], entry: TracedValue) -> TracedValue | None:
    """The one call that reads a value; None where several do."""
    readers = [other for other in entries if entry.place in other.inputs and other.outer is None]
    if len(readers) != 1:
        return None
    return readers[0]


def _keeps_shape(call: TracedValue, operand: TracedValue) -> bool:
    return call.call >= 0 and call.sketch.shape == operand.sketch.shape


def _changes(workbench: "Workbench", row: list[TracedValue]) -> Iterator[dict[int, Change]]:
    """The calls of the row left out, then those of every block that has the same lines."""
    passing = [pass_operand(row[0])]
    for before, call in itertools.pairwise(row):
        passing.append(pass_operand(call, call.inputs.index(before.place)))
    alone = {call.call: change for call, change in zip(row, passing, strict=True)}
    yield alone
    everywhere = {
        other: change
        for call, change in zip(row, passing, strict=True)
        for other in calls_from_same_line(workbench, call)
    }
    if len(everywhere) > len(alone):
        yield everywhere
