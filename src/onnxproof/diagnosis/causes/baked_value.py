"""A value of the example was written into the file.

What it is: a number that depends on the input became a constant while tracing.

Why it happens: `.item()`, `float(x.max())`, `x.tolist()`, a Python branch on a value.

How to see it: the node is right again when its constant is replaced by what the module computes for this input.

How to fix it: stay in tensors (`x / x.abs().max()`), use `torch.where` for a branch, or `torch.cond`.

Example: normalising by `x.abs().max().item()`.
"""

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals import changed_reference
from onnxproof.diagnosis.counterfactuals.changed_reference import describe_source
from onnxproof.diagnosis.counterfactuals.example_numbers import ExampleNumber, example_numbers
from onnxproof.diagnosis.counterfactuals.suspected_calls import inputs_through_views
from onnxproof.diagnosis.counterfactuals.table_index import computes_table_index
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.reference.traced_value import TracedValue

TITLE = "a value of the example was written into the file"
PRICE = 12
CODES = (
    "baked-value",
    "baked-branch",
    "baked-dimension",
    "weights",
    "masking",
    "attribute",
    "position",
)
_WRITTEN_DOWN = ("full", "scalar_tensor", "lift_fresh", "new_", "zeros", "ones", "fill", "_to_copy")
"""How the names of operators begin that make a tensor of a number in the module's code."""
_MOST_CALLS = 24
"""Calls of the module that are tried one by one. Not measured."""
_MOST_SCALARS = 40
"""Single numbers of the module that are tried in the place of a constant. Not measured."""
_SAME_NUMBER = 1e-5
"""Relative distance up to which a constant is a number of the example: it is rounded to float32, and so were its inputs. Not measured."""
_NUMBERS: "weakref.WeakKeyDictionary[Workbench, dict[int, float]]" = weakref.WeakKeyDictionary()
"""The single numbers that the module of a workbench computes for its example."""
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
        tried = workbench.try_counterfactual(
            changed_reference.changed_calls(workbench, changes, may_refuse=True),
            _describe(workbench, numbers[0]),
            code=_code(numbers[0]),
        )
        if tried is not None:
            return tried
    return None


def _groups(workbench: Workbench) -> Iterator[list[ExampleNumber]]:
    """All numbers that were read by `.item()`, each number alone, then all."""
    numbers = list(example_numbers(workbench))
    if not numbers:
        return
    items = [number for number in numbers if number.op == _ITEM]
    if items:
        yield items
    if workbench.witness.outputs is None:
        return  # the file gives no answer, and a wrong size breaks any module; `baked-dimension` traces it
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
        if number == present or not _may_be_baked(workbench, node, entry, present):
            continue
        computed = _ComputedConstant(workbench, node, place, entry.place)
        tried = workbench.try_counterfactual(
            Counterfactual(error=computed.error, in_reference=False),
            f"{node_name(node)} holds {present:g}, where the module computes {number:g} ({entry.op}{_location(entry)}); with what it computes in that place the answers are right",
            code=_code_of_constant(workbench, node, entry),
        )
        if tried is not None:
            return tried
    return None


def _code_of_constant(workbench: Workbench, node: onnx.NodeProto, entry: TracedValue) -> str:
    """A number that inputs decide is baked; one that is written down in the module is a mask's fill or an attribute; one that parameters decide is a weight."""
    if entry.inputs:
        return "baked-value"
    if "float" in entry.dtype and not entry.op.startswith(_WRITTEN_DOWN):
        return "weights"
    if node.op_type == "Where":
        return "masking"
    if computes_table_index(workbench, node):
        return "position"
    return "attribute"


def _may_be_baked(
    workbench: Workbench, node: onnx.NodeProto, entry: TracedValue, present: float
) -> bool:
    """Whether the file holds what the module computes for its example; a number that no input decides must be one that the node's own call reads."""
    if not entry.inputs:
        own = workbench.counterpart(node)
        return own is not None and entry.place in inputs_through_views(
            workbench.located.traced_values, own
        )
    example = _example_numbers(workbench).get(entry.place)
    return example is not None and math.isclose(example, present, rel_tol=_SAME_NUMBER)


def _example_numbers(workbench: Workbench) -> dict[int, float]:
    """The single numbers that the module computes for its example, by their places; none where it takes another path there."""
    if workbench not in _NUMBERS:
        reference = workbench.scene.reference
        traced, fetch = reference.trace(reference.example())
        here = workbench.located.traced_values
        _NUMBERS[workbench] = {}
        if [entry.op for entry in traced] == [entry.op for entry in here]:
            values = {e.place: fetch(e.place) for e in traced if e.sketch.count == 1}
            _NUMBERS[workbench] = {
                place: float(np.asarray(value).reshape(-1)[0])
                for place, value in values.items()
                if value is not None
            }
    return _NUMBERS[workbench]


@dataclass(frozen=True, slots=True)
class _ComputedConstant:
    """The file with the number that the module computes for each case in the place of a constant."""

    workbench: Workbench
    node: onnx.NodeProto
    place: int
    traced: int
    """The place of the module's number among its traced values."""

    def error(self, case: TrialCase) -> float | None:
        """The error that is left on a case; None where the module takes another path there."""
        number = self._number(case)
        if number is None:
            return None
        present = {place: value for place, _, value in self.workbench.constants(self.node)}
        value = present[self.place]
        constant = np.full(value.shape, number, value.dtype)
        model = self.workbench.with_constant(self.node, self.place, constant)
        return case.scene.error(self.workbench.run(model, inputs=case.inputs))

    def _number(self, case: TrialCase) -> float | None:
        located = self.workbench.located
        fetch = located.fetch
        if case.scene is not self.workbench.scene:
            traced, fetch = case.scene.reference.trace(case.inputs)
            if len(traced) != len(located.traced_values):
                return None
        value = fetch(self.traced)
        if value is None or not np.size(value):
            return None
        return float(np.asarray(value).reshape(-1)[0])
