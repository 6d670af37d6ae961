"""Which calls of the module are tried: those at which the file may differ from it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxproof.diagnosis import limits
from onnxproof.reference.traced_value import TracedValue

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.workbench import Workbench

_MOST_CALLS = 10
"""Calls that are tried for one cause. Not measured."""
VIEWS = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "unsqueeze",
        "squeeze",
        "permute",
        "transpose",
        "t",
        "alias",
        "detach",
        "clone",
        "slice",
        "select",
        "split",
        "split_with_sizes",
        "unbind",
        "_to_copy",
        "lift_fresh",
        "contiguous",
        "_reshape_alias",
        "real",
    }
)
"""Operators that move or copy values and compute none."""


def suspected_calls(workbench: "Workbench", *, views: bool = False) -> list[TracedValue]:
    """The module's calls at which the file may differ, in the order in which they are tried.

    1. The calls of the located nodes.
    2. The calls that compute what those read, seen through views.
    3. The calls on the same source lines whose result is not in the file, and the calls whose inputs are in the file
       and whose result is not; the nearest to the located node first.
    4. With `views`, the views through which all of these read take the place of steps 2 and 3.

    A call inside a composite operation stands for the whole operation.
    """
    entries = workbench.located.traced_values
    in_file = values_in_file(workbench)
    counterparts = [
        workbench.counterpart(node) for node in workbench.nodes[: limits.SUSPECTS_COMPARED]
    ]
    located = [entry for entry in counterparts if entry is not None]  # 1
    producers = [
        entries[place] for entry in located for place in inputs_through_views(entries, entry)
    ]  # 2
    same_lines = _calls_on_same_lines(workbench, located, in_file)
    nearest = _nearest(located, same_lines, _first_missing(entries, in_file))  # 3
    ordered = [*located, *producers, *nearest]
    if views:  # 4
        behind = [view for entry in ordered for view in _views_read_by(entries, entry)]
        ordered = [*located, *behind, *same_lines]
    return _whole_operations(entries, ordered)[:_MOST_CALLS]


def values_in_file(workbench: "Workbench") -> set[int]:
    """The places of traced values that the file has: matched ones, inputs, and views of those."""
    located = workbench.located
    in_file = {
        entry.place
        for entry in located.traced_values
        if entry.place in located.matched or entry.op.startswith("input ")
    }
    for entry in located.traced_values:
        if entry.op in VIEWS and entry.inputs and in_file.issuperset(entry.inputs):
            in_file.add(entry.place)
    return in_file


def _calls_on_same_lines(
    workbench: "Workbench", located: list[TracedValue], in_file: set[int]
) -> list[TracedValue]:
    lines = {entry.source for entry in located}
    lines.add(workbench.location.source)
    lines.discard(None)
    return [
        entry
        for entry in workbench.located.traced_values
        if entry.source in lines and entry.place not in in_file
    ]


def _first_missing(entries: list[TracedValue], in_file: set[int]) -> list[TracedValue]:
    """The calls whose inputs are in the file and whose result is not."""
    return [
        entry
        for entry in entries
        if entry.place not in in_file and in_file.issuperset(entry.inputs)
    ]


def _nearest(
    located: list[TracedValue], same_lines: list[TracedValue], first_missing: list[TracedValue]
) -> list[TracedValue]:
    if not located:
        return [*first_missing, *same_lines]
    here = located[0].place
    return sorted([*same_lines, *first_missing], key=lambda entry: abs(entry.place - here))


def _whole_operations(entries: list[TracedValue], ordered: list[TracedValue]) -> list[TracedValue]:
    """Each entry, or the whole operation it is a part of; each call once."""
    chosen: dict[int, TracedValue] = {}
    for entry in ordered:
        if entry.outer is not None:
            entry = entries[entry.outer]
        if entry.call >= 0:
            chosen.setdefault(entry.call, entry)
    return list(chosen.values())


def inputs_through_views(entries: list[TracedValue], start: TracedValue) -> Iterator[int]:
    """What a call reads, seen through views: a step that the file leaves out is one of these."""
    waiting = list(start.inputs)
    while waiting:
        place = waiting.pop(0)
        if entries[place].op in VIEWS:
            waiting += entries[place].inputs
        else:
            yield place


def _views_read_by(entries: list[TracedValue], start: TracedValue) -> Iterator[TracedValue]:
    """The views through which a call reads what it reads."""
    waiting = [start.place]
    while waiting:
        entry = entries[waiting.pop()]
        if entry.op in VIEWS:
            yield entry
        if entry is start or entry.op in VIEWS:
            waiting += entry.inputs


def calls_from_same_line(workbench: "Workbench", entry: TracedValue) -> list[int]:
    """Every call of the same operator from the same line: a loop or a stack of blocks has the fault in each."""
    calls = {
        other.call
        for other in workbench.located.traced_values
        if other.outer is None and other.op == entry.op and other.source == entry.source
    }
    return sorted(call for call in calls if call >= 0)
