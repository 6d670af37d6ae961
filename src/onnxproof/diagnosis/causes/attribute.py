"""An attribute of a node is not what the module says.

What it is: the right operator with a wrong number or mode: an epsilon, the form of GELU, alpha or beta, an axis, a
padding, a coordinate or rounding mode, exclusive or reverse, the divisor of a variance, a scale, a constant operand.

Why it happens: exporters and fusions fall back to the standard's default, copy the attribute of another layer, or
know one framework's convention and not the other's.

How to see it: the node is wrong while its inputs are right, and the same node with another value is right.

How to fix it: export again with a newer exporter, or take the mended file that onnxproof writes.

Example: LayerNorm trained with epsilon 1e-12, written with 1e-5: only rows of low variance show it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.attribute_values import (
    OtherValue,
    other_arguments,
    other_attributes,
)
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Variant,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.image_sampling import try_resizes
from onnxproof.diagnosis.counterfactuals.lost_factor import find_lost_factor
from onnxproof.diagnosis.counterfactuals.masked_calls import decides_what_is_seen
from onnxproof.diagnosis.counterfactuals.module_numbers import module_numbers, written_numbers
from onnxproof.diagnosis.counterfactuals.other_functions import other_functions
from onnxproof.diagnosis.counterfactuals.reference_node import try_reference_nodes
from onnxproof.diagnosis.counterfactuals.shifted_slices import try_shifted_slices
from onnxproof.diagnosis.counterfactuals.suspected_calls import VIEWS
from onnxproof.diagnosis.counterfactuals.swapped_operator import try_other_operators
from onnxproof.diagnosis.counterfactuals.table_index import computes_position
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute_value,
    node_name,
    set_attribute,
)
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Fix

TITLE = "a node's attribute differs from the module's"
PRICE = 30
CODES = (
    "attribute",
    "baked-dimension",
    "clipping",
    "masking",
    "missing-op",
    "mutation",
    "position",
    "rounding",
    "scatter",
    "tie-order",
    "train-mode",
    "weights",
)
_OPERATOR_CODES = {
    "ScatterElements": "scatter",
    "ScatterND": "scatter",
    "Clip": "clipping",
    "Round": "rounding",
    "ArgMax": "tie-order",
    "ArgMin": "tie-order",
}
_SUPERFLUOUS_CODES = {"Not": "masking", "And": "masking", "Or": "masking"}
"""What one operation too many is, where it is not an attribute: of truth values it is a mask."""
_ATTRIBUTE_CODES = {"training_mode": "train-mode", "clip": "clipping"}
_CALL_CODES = {
    "clamp": "clipping",
    "clamp_min": "clipping",
    "clamp_max": "clipping",
    "hardtanh": "clipping",
    "tril": "masking",
    "triu": "masking",
    "scatter_reduce": "scatter",
    "index_put": "scatter",
    "native_batch_norm": "attribute",
}
_NEUTRAL = (
    ("mul", "other", 1),
    ("div", "other", 1),
    ("add", "other", 0),
    ("sub", "other", 0),
    ("add", "alpha", 0),
    ("sub", "alpha", 0),
)
"""Arguments with which a call does nothing: then it is the call that is missing."""
_LEAST_FACTOR = 1e-3
"""The smallest factor of an addend that is tried. Not measured."""
_DOES_NOTHING = (("Add", 0.0), ("Sub", 0.0), ("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0))
"""Operators with the constant that changes nothing: then the node is one too many."""
_CONVOLUTION_ATTRIBUTES = {"stride": "strides", "dilation": "dilations"}
_REDUCTIONS = (
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)
_POOLS = ("MaxPool", "AveragePool")
_GLOBAL_POOLS = ("GlobalMaxPool", "GlobalAveragePool")
_OF_TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_INDEX_READERS = ("Reshape", "Gather", "Slice", "Unsqueeze", "Squeeze", "Expand")
"""Operators whose integer operands are places and sizes, not numbers of a formula."""


def test(workbench: Workbench) -> Tried | str:
    """The file's numbers in the module's calls, and the module's numbers in the file's nodes."""
    return workbench.try_in_reference(
        partial(_variants, workbench), remedy=lambda: _mend_nodes(workbench)
    )


def _variants(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    """Every argument of a call with each value that the file, or another convention, has for it."""
    if entry.op == "convolution":
        for node in workbench.nodes[: limits.SUSPECTS_COMPARED]:
            yield _convolution_of(node)
    yield from other_functions(entry)
    yield from _other_arguments(workbench, entry)


def _convolution_of(node: onnx.NodeProto) -> Variant:
    """The module's convolution with the strides, dilations and pads of a located node."""
    arguments = {}
    for name, attribute in _CONVOLUTION_ATTRIBUTES.items():
        value = attribute_value(node, attribute)
        if value is not None:
            arguments[name] = list(value)
    pads = attribute_value(node, "pads")
    if pads is not None:
        arguments["padding"] = list(pads[: len(pads) // 2])
    listed = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Variant(what=f"with {listed}", change=with_arguments(**arguments))


def _other_arguments(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    if entry.op in VIEWS:
        return
    for name, value in entry.arguments.items():
        for other in other_arguments(workbench, name, value):
            same = other == value and type(other) is type(value)
            if same or (name == "alpha" and _is_negligible(other)):
                continue
            what = f"with {name}={other} instead of {value}"
            if _drops_bias(entry, name, other):
                what = "without its bias"
            yield Variant(
                what=what,
                change=with_arguments(**{name: other}),
                code=_code_of_argument(workbench, entry, name, other),
            )


def _is_negligible(factor: Any) -> bool:
    """Whether a factor is so small that an addend is as good as left out: an epsilon nearby would stand for a missing residual."""
    return isinstance(factor, float) and 0 < abs(factor) < _LEAST_FACTOR


def _drops_bias(entry: TracedValue, name: str, other: Any) -> bool:
    return name == "beta" and other == 0 and entry.op in ("addmm", "baddbmm")


def _code_of_argument(workbench: Workbench, entry: TracedValue, name: str, other: Any) -> str:
    """The code of a call with another argument: a call that then does nothing is missing, a number that a located Where reads hides places."""
    if decides_what_is_seen(workbench, entry):
        return "masking"
    if (entry.op.rstrip("_"), name, other) in _NEUTRAL:
        return _missing_call_code(entry)
    if _drops_bias(entry, name, other):
        return "weights"
    return _CALL_CODES.get(entry.op, "attribute")


def _missing_call_code(entry: TracedValue) -> str:
    """A call that is missing from the file: a write in place, or another operation."""
    if entry.op.endswith("_"):
        return "mutation"
    return "missing-op"


def _mend_nodes(workbench: Workbench) -> Tried | str:
    """A change of the located nodes that makes the file right.

    1. The operator and attributes of the reference's own node, where that is a file; another value of one attribute, the module's own first.
    2. A number of the module in the place of a scalar operand.
    3. Another reduction or pool, another operator of two operands, another way of resizing.
    4. A slice moved by one; a factor that explains the values; a node that is one too many.
    5. Of step 1, the value that came nearest, where it explains most of the error.
    """
    own = try_reference_nodes(workbench, _OPERATOR_CODES)
    if own is not None:
        return own  # 1
    nearest, least = _best_attribute(workbench)
    if nearest is not None and nearest.judgement is not None:
        return nearest  # 1
    tried_elsewhere = (
        _try_operands(workbench)
        or _try_operators(workbench)
        or _try_resizes(workbench)
        or try_shifted_slices(workbench)
        or find_lost_factor(workbench)
        or _try_without_node(workbench)
    )
    if tried_elsewhere is not None:
        return tried_elsewhere  # 2, 3, 4
    if nearest is not None and least < workbench.before / limits.LIKELY_IMPROVEMENT:
        return nearest  # 5
    return "no other attribute of the named nodes mends it"


def _best_attribute(workbench: Workbench) -> tuple[Tried | None, float]:
    """The first other value of an attribute that mends the file, else the one that comes nearest; with the error that is left."""
    nearest: Tried | None = None
    least = float("inf")
    for node in workbench.nodes_and_producers:
        for value in other_attributes(workbench, node):
            tried, after = _try_attribute(workbench, node, value)
            if tried.judgement is not None:
                return tried, after
            if nearest is None or after < least:
                nearest = tried
                least = after
    return nearest, least


def _try_attribute(
    workbench: Workbench, node: onnx.NodeProto, value: OtherValue
) -> tuple[Tried, float]:
    """One attribute with another value, and the error that is left."""
    change = partial(set_attribute, name=value.name, value=value.other)
    model = workbench.with_node(node, change)
    name = node_name(node)
    present = _format(value.present)
    other = _format(value.other)
    default_code = _ATTRIBUTE_CODES.get(value.name, "attribute")
    after = workbench.distance(model)
    what = f"`{value.name}` of {name} ({node.op_type}) is {present}, and {other}"
    code = _OPERATOR_CODES.get(node.op_type, default_code)
    fix = f"set `{value.name}` of {name} to {other}"
    if workbench.cured(after):
        evidence = f"{what} gives what the module gives"
        tried = workbench.try_model(model, evidence=evidence, fix=fix, code=code)
        if tried is not None:
            return tried, after
    nearer = f"{what} comes nearer to what the module gives"
    return Tried(evidence=nearer, after=after, code=code, fix=Fix(kind="graph", what=fix)), after


def _try_operators(workbench: Workbench) -> Tried | None:
    """A sum for a mean, a product for a sum: the located nodes with each other reduction, pool, or operator of two operands."""
    families = (_REDUCTIONS, _OF_TWO, _POOLS, _GLOBAL_POOLS)
    tried = try_other_operators(workbench, families, keep_attributes=True, only_located=True)
    if isinstance(tried, str):
        return None
    return tried


def _try_resizes(workbench: Workbench) -> Tried | None:
    """A located Resize with all attributes of another way of resizing: antialiasing brings several with it."""
    located = workbench.nodes[: limits.SUSPECTS_EDITED]
    return try_resizes(workbench, [node for node in located if node.op_type == "Resize"])


def _try_without_node(workbench: Workbench) -> Tried | None:
    """An operation too many: a located node whose first operand goes through as it is."""
    for node in workbench.nodes[: limits.SUSPECTS_COMPARED]:
        name = node_name(node)
        tried = workbench.try_model(
            workbench.with_node(node, _pass_through),
            evidence=f"without {name} ({node.op_type}) the answers are right",
            fix=f"take {name} out",
            code=_SUPERFLUOUS_CODES.get(node.op_type, "attribute"),
        )
        if tried is not None:
            return tried
    return None


def _pass_through(node: onnx.NodeProto) -> None:
    node.op_type = "Identity"
    node.domain = ""
    del node.attribute[:]
    del node.input[1:]
    del node.output[1:]


def _try_operands(workbench: Workbench) -> Tried | None:
    """A scalar operand, such as the epsilon that is added before a logarithm: another number in its place.

    1. A number that the module's calls are written with; the number with which the operation does nothing.
    2. The same in the other order, where it is an integer: what is taken modulo a size may be right with both.
    3. What a formula may have made of the module's numbers, and usual constants.
    """
    for node in workbench.nodes_and_producers:
        written = written_numbers(workbench, node)
        neutral = [number for op_type, number in _DOES_NOTHING if op_type == node.op_type]
        usual = [(written, "the module's "), (neutral, "the neutral ")]
        for place, _, value in workbench.constants(node):
            if value.size != 1 or not _is_number(node, value):
                continue
            operand = _Operand(node, place, value)
            order = usual[::-1] if value.dtype.kind in "iu" else usual  # 1, 2
            for numbers, whose in (*order, (module_numbers(workbench, node), "")):  # 3
                tried = _try_numbers(workbench, operand, numbers, whose)
                if tried is not None:
                    return tried
    return None


def _is_number(node: onnx.NodeProto, value: Array) -> bool:
    return value.dtype.kind == "f" or node.op_type not in _INDEX_READERS


@dataclass(frozen=True, slots=True)
class _Operand:
    """A constant operand of a located node: one number."""

    node: onnx.NodeProto
    place: int
    value: Array

    @property
    def present(self) -> float:
        """What the file has."""
        return float(self.value.reshape(-1)[0])

    def model(self, workbench: Workbench, number: float) -> onnx.ModelProto:
        """The file with another number there."""
        constant = np.full(self.value.shape, number, self.value.dtype)
        return workbench.with_constant(self.node, self.place, constant)


def _try_numbers(
    workbench: Workbench, operand: _Operand, numbers: list[float], whose: str
) -> Tried | None:
    """Of these numbers the one that leaves the least error: several may be near enough, and one is right; those that leave the same are named with it."""
    errors = {
        number: workbench.distance(operand.model(workbench, number))
        for number in numbers
        if number != operand.present
    }
    if not errors:
        return None
    least = min(errors.values())
    if not workbench.cured(least):
        return None
    equal = [number for number in numbers if errors.get(number, np.inf) <= least]
    number = equal[0]
    others = "".join(f" or {other:.9g}" for other in equal[1:3])
    node = operand.node
    name = node_name(node)
    return workbench.try_model(
        operand.model(workbench, number),
        code=_code_of_operand(workbench, operand, number),
        evidence=f"operand {operand.place} of {name} ({node.op_type}) is {operand.present:.9g}; with {whose}{number:.9g}{others} the answers are right",
        fix=f"set the constant operand {operand.place} of {name} to {number:g}",
    )


def _code_of_operand(workbench: Workbench, operand: _Operand, number: float) -> str:
    node = operand.node
    if operand.value.dtype.kind in "iu" and computes_position(workbench, node):
        return "position"
    if node.op_type in ("SequenceAt", "Gather", "Slice") and number < 0 <= operand.present:
        return "baked-dimension"  # the example's last place for the last place
    if node.op_type == "Where":
        return "masking"  # what hides a place
    return _OPERATOR_CODES.get(node.op_type, "attribute")


def _format(value: Any) -> str:
    if isinstance(value, bytes):
        return f"`{value.decode()}`"
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{value}`"
