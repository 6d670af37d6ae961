"""A value of the example was written into the file.

What it is: a number that depends on the input became a constant while tracing.

Why it happens: `.item()`, `float(x.max())`, `x.tolist()`, a Python branch on a value.

How to see it: the node is right again when its constant is replaced by what the module computes for this input.

How to fix it: stay in tensors (`x / x.abs().max()`), use `torch.where` for a branch, or `torch.cond`.

Example: normalising by `x.abs().max().item()`.
"""

from collections.abc import Iterator

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals import changed_reference
from onnxproof.diagnosis.counterfactuals.changed_reference import describe_source
from onnxproof.diagnosis.counterfactuals.example_numbers import ExampleNumber, example_numbers
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name
from onnxproof.reference.traced_value import TracedValue

TITLE = "a value of the example was written into the file"
PRICE = 12
CODES = ("baked-value", "baked-branch", "baked-dimension", "weights")
_MOST_CALLS = 24
"""Calls of the module that are tried one by one. Not measured."""
_MOST_SCALARS = 40
"""Single numbers of the module that are tried in the place of a constant. Not measured."""
_ITEM = "_local_scalar_dense"
"""What `.item()` calls."""


def test(workbench: Workbench) -> Tried | str:
    """Give the module the example's numbers; then give the file the module's own number for the witness."""
    return _try_example_numbers(workbench) or _try_witness_numbers(workbench)


def _try_example_numbers(workbench: Workbench) -> Tried | None:
    """The module with the numbers of its example at some calls: does it then give the candidate's outputs?"""
    if workbench.located.module_session is None:
        return None
    for numbers in _groups(workbench):
        changes = {number.call: number.change for number in numbers}
        after = changed_reference.distance(workbench, changes)
        if workbench.cured(after):
            return Tried(
                proven=True,
                by_reference=True,
                after=after,
                code=_code(numbers[0]),
                evidence=_describe(workbench, numbers[0]),
            )
    return None


def _groups(workbench: Workbench) -> Iterator[list[ExampleNumber]]:
    """All numbers that were read by `.item()`, each number alone, then all."""
    numbers = list(example_numbers(workbench))
    if not numbers:
        return
    items = [number for number in numbers if number.op == _ITEM]
    if items:
        yield items
    for number in numbers[:_MOST_CALLS]:
        yield [number]
    yield numbers


def _code(number: ExampleNumber) -> str:
    if isinstance(number.number, bool):
        return "baked-branch"
    if number.op == _ITEM:
        return "baked-value"
    return "baked-dimension"


def _describe(workbench: Workbench, number: ExampleNumber) -> str:
    kind = "answer" if isinstance(number.number, bool) else "number"
    where = ""
    for entry in workbench.located.traced_values:
        if entry.call == number.call:
            where = _location(entry)
            break
    return f"the module with the example's {kind} {number.number} in `{number.op}`{where} gives what the candidate gives"


def _location(entry: TracedValue) -> str:
    if not entry.source:
        return ""
    return f" at {describe_source(entry)}"


def _try_witness_numbers(workbench: Workbench) -> Tried | str:
    """Put the module's own number for the witness in the place of the constant."""
    reference = workbench.scene.reference
    for node in workbench.nodes[: limits.SUSPECTS_COMPARED]:
        for place, name, value in workbench.constants(node):
            if value.size == 1 and reference.parameter(name) is None:
                tried = _try_constant(workbench, node, place, value)
                if tried is not None:
                    return tried
    return "no constant of the named nodes is a value the module computes"


def _try_constant(
    workbench: Workbench, node: onnx.NodeProto, place: int, value: Array
) -> Tried | None:
    present = float(value.reshape(-1)[0])
    scalars = [entry for entry in workbench.located.traced_values if entry.sketch.count == 1]
    for entry in scalars[:_MOST_SCALARS]:
        truth = workbench.located.fetch(entry.place)
        if truth is None:
            continue
        number = float(np.asarray(truth).reshape(-1)[0])
        if number == present:
            continue
        constant = np.full(value.shape, number, value.dtype)
        after = workbench.distance(workbench.with_constant(node, place, constant))
        if workbench.cured(after):
            return Tried(
                proven=True,
                after=after,
                code="" if entry.inputs else "weights",
                evidence=f"{node_name(node)} holds {present:g}; "
                f"for this input the module computes {number:g} ({entry.op}{_location(entry)})",
            )
    return None
