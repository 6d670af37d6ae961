"""The weights in the file are not the module's.

What it is: another checkpoint, two initializers exchanged, a bias dropped, a weight rounded to half precision, or the
right numbers in another layout (transposed, gates or heads in another order, channels reversed).

Why it happens: external data at a wrong offset, a name that two tensors share, a stale checkpoint, a conversion that
knows another framework's order.

How to see it: the initializer differs from the parameter it stands for, and with the parameter in its place the
answers are right. Folded BatchNorm and transposed copies are seen through.

How to fix it: export again from the right checkpoint, or take the mended file.

Example: two LayerNorm weights of one shape read from each other's offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Arguments,
    Change,
    Keywords,
    Variant,
    call_instead,
    operands_vary,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.misplaced_weights import (
    make_tensor,
    try_directions,
    try_exchanged_weights,
    try_gate_orders,
)
from onnxproof.diagnosis.counterfactuals.module_parameters import (
    NamedArray,
    is_same_weight,
)
from onnxproof.diagnosis.counterfactuals.unmatched_weights import reads_unmatched_matrix
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    node_name,
    node_with_output,
)
from onnxproof.diagnosis.locate.parameters import reference_arrays
from onnxproof.onnxmodel import mapped_weights
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Fix

TITLE = "the weights in the file are not the module's"
PRICE = 20
CODES = ("weights", "weight-layout", "precision", "preprocessing", "baked-value")
_FIX = Fix(kind="graph", what="write the module's own weights into the file")
_MOST_PARAMETERS = 12
"""Parameters that are tried in the place of one constant, the nearest first. Not measured."""
_LEAST_PROGRESS = 0.9
"""A parameter is kept where it leaves less than this share of the error. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    """A constant that a node reads."""

    node: onnx.NodeProto
    place: int
    name: str
    value: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mended:
    """A model with one constant replaced."""

    model: onnx.ModelProto
    after: float
    what: str
    code: str


def is_likely(workbench: Workbench) -> bool:
    """True where the located node reads a matrix that the module doesn't have, and the nodes of its kind read the module's own."""
    return reads_unmatched_matrix(workbench)


def test(workbench: Workbench) -> Tried | str:
    """The parameters of the module, or of the file that is the reference, in the place of the file's constants.

    1. Every initializer that bears a parameter's name.
    2. The constants of the located nodes, one node after the other.
    3. Weights that two nodes of one kind have exchanged; gates or directions in another order.
    4. The file's constants in the module's own call.
    """
    parameters = list(reference_arrays(workbench.scene.reference, copies=False).items())
    if not parameters:
        return "the reference has no parameters to compare with"
    return (
        _replace_by_name(workbench, dict(parameters))
        or _replace_in_nodes(workbench, parameters)
        or try_exchanged_weights(workbench)
        or try_gate_orders(workbench)
        or try_directions(workbench)
        or workbench.try_in_reference(partial(_variants, workbench))
    )


def _replace_by_name(workbench: Workbench, parameters: dict[str, Array]) -> Tried | None:
    """Another checkpoint: every initializer that bears a parameter's name gets that parameter's numbers."""
    model = workbench.copy_model()
    wrong: list[str] = []
    for tensor in model.graph.initializer:
        value = mapped_weights.to_array(tensor)
        truth = parameters.get(tensor.name)
        if truth is None or truth.shape != value.shape or is_same_weight(value, truth):
            continue
        tensor.CopyFrom(make_tensor(truth.astype(value.dtype), tensor.name))
        wrong.append(tensor.name)
    if len(wrong) < 2:
        return None
    return workbench.try_model(
        model,
        evidence=f"{len(wrong)} initializers differ from the parameters of their names ({', '.join(wrong[:4])}); with those the answers are right",
        fix=_FIX.what,
    )


def _replace_in_nodes(workbench: Workbench, parameters: list[NamedArray]) -> Tried | None:
    """The located nodes with the module's parameters, one after the other; likely where that explains much of the error."""
    model = workbench.model
    mended_nodes: list[_Mended] = []
    for node in workbench.nodes[: limits.SUSPECTS_MENDED_TOGETHER]:
        mended = _mend_node(workbench, model, node, parameters)
        if mended is None:
            continue
        model = mended.model
        mended_nodes.append(mended)
        if workbench.cured(mended.after):
            tried = workbench.try_model(
                model,
                evidence=f"{_evidence(mended_nodes)}; put right, the answers are right",
                code=mended_nodes[0].code,
                fix=_FIX.what,
            )
            if tried is not None:
                return tried
    if not mended_nodes:
        return None
    after = mended_nodes[-1].after
    if after < workbench.before / limits.FIXED_IMPROVEMENT:
        return Tried(evidence=_evidence(mended_nodes), after=after)
    return None


def _evidence(mended_nodes: list[_Mended]) -> str:
    return "; ".join(mended.what for mended in mended_nodes[:4])


def _mend_node(
    workbench: Workbench,
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    parameters: list[NamedArray],
) -> _Mended | None:
    """The model with a wrong constant of this node replaced by the parameter that brings it nearest."""
    best: _Mended | None = None
    allowed = workbench.distance(model) * _LEAST_PROGRESS
    for constant in _float_constants(workbench, node, parameters):
        for label, truth in _other_parameters(constant.value, parameters):
            changed = _with_weight(model, constant, truth)
            after = workbench.distance(changed)
            if after < allowed and (best is None or after < best.after):
                what, code = _describe(workbench, constant, label, truth, parameters)
                best = _Mended(model=changed, after=after, what=what, code=code)
            if workbench.cured(after):
                break
    return best


def _float_constants(
    workbench: Workbench, node: onnx.NodeProto, parameters: list[NamedArray]
) -> Iterator[_Constant]:
    """The constants of a node that may be parameters: a single number only under a parameter's name."""
    names = {name for name, _ in parameters}
    for place, name, value in workbench.constants(node):
        if value.dtype.kind == "f" and (value.size > 1 or name in names):
            yield _Constant(node=node, place=place, name=name, value=value)


def _other_parameters(value: Array, parameters: list[NamedArray]) -> list[NamedArray]:
    """The parameters of this shape that are not this constant, the nearest first."""
    same_shape = [(label, array) for label, array in parameters if array.shape == value.shape]
    same_shape.sort(key=lambda parameter: float(np.abs(parameter[1] - value).mean()))
    return [
        (label, array)
        for label, array in same_shape[:_MOST_PARAMETERS]
        if not _is_equal(array, value)
    ]


def _is_equal(parameter: Array, value: Array) -> bool:
    return np.array_equal(parameter.astype(value.dtype), value)


def _with_weight(model: onnx.ModelProto, constant: _Constant, value: Array) -> onnx.ModelProto:
    """A copy of a model in which one node reads other weights."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    output = constant.node.output[0]
    name = f"{output}_{constant.place}_weights"
    copied.graph.initializer.append(make_tensor(value.astype(constant.value.dtype), name))
    node_with_output(copied.graph, output).input[constant.place] = name
    return copied


def _describe(
    workbench: Workbench,
    constant: _Constant,
    label: str,
    truth: Array,
    parameters: list[NamedArray],
) -> tuple[str, str]:
    """What is wrong with a constant, in words and as a code."""
    value = constant.value
    where = f"`{constant.name}` of {node_name(constant.node)}"
    for half in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        if np.array_equal(truth.astype(half).astype(value.dtype), value):
            return f"{where} is `{label}` rounded to {half}", "precision"
    if is_same_weight(np.sort(value, axis=None), np.sort(truth, axis=None)):
        if _reads_image(workbench, constant) and is_same_weight(value[:, ::-1], truth):
            reversed_channels = f"the input channels of `{constant.name}` are reversed"
            return f"{reversed_channels} (RGB and BGR)", "preprocessing"
        if _is_norm_of_image(workbench, constant) and _is_reversed(value, truth):
            reverse = f"`{constant.name}` holds `{label}` in the reverse order of channels"
            return f"{reverse} (RGB and BGR)", "preprocessing"
        return f"{where} holds the numbers of `{label}` in another order", "weight-layout"
    for other, array in parameters:
        if array.shape == value.shape and _is_equal(array, value):
            return f"{where} holds `{other}`; it should be `{label}`", "weights"
    return f"{where} differs from `{label}`", "weights"


def _reads_image(workbench: Workbench, constant: _Constant) -> bool:
    """True for the weights of a convolution that reads an input of three channels."""
    node = constant.node
    shape = constant.value.shape
    if node.op_type != "Conv" or len(shape) < 2 or shape[1] != 3:
        return False
    return any(info.name == node.input[0] for info in workbench.model.graph.input)


def _is_norm_of_image(workbench: Workbench, constant: _Constant) -> bool:
    """True for three numbers of an elementwise operator, where an input is an image."""
    if constant.node.op_type not in ("Sub", "Div", "Mul", "Add") or constant.value.size != 3:
        return False
    inputs = workbench.scene.signature.inputs
    return any(len(info.shape) == 4 and 3 in info.shape for info in inputs)


def _is_reversed(value: Array, truth: Array) -> bool:
    return is_same_weight(value.reshape(-1)[::-1], truth.reshape(-1))


def _variants(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    """The module's own call without its bias, and with the constants of each located node in the place of its parameters."""
    if entry.op == "convolution":
        yield Variant(what="without its bias", change=with_arguments(bias=None))
    if entry.op in ("addmm", "baddbmm"):
        yield Variant(
            what="without its bias",
            change=call_instead(lambda bias, left, right, *rest: left @ right),
        )
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        constants = [
            array.astype(np.float64)
            for _, _, array in workbench.constants(node)
            if array.dtype.kind == "f" and array.size > 1
        ]
        if constants:
            yield Variant(
                what=f"with the constants of {node_name(node)} in the place of its operands",
                change=_with_constants(constants),
                name=partial(_code_of_constants, workbench, entry),
            )


def _code_of_constants(workbench: Workbench, entry: TracedValue) -> str:
    """What the module computes anew for every input, and the file holds, is no weight."""
    return "baked-value" if operands_vary(workbench, entry) else "weights"


def _with_constants(constants: list[Array]) -> Change:
    """The call with each tensor behind the first replaced by the first unused constant of its size; the first itself where none of those fits."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        unused = list(constants)
        arguments = list(args)
        for place in (*range(1, len(args)), 0):
            value = args[place]
            if not isinstance(value, torch.Tensor) or (place == 0 and len(unused) < len(constants)):
                continue
            sizes = [array.size for array in unused]
            if value.numel() in sizes:
                array = unused.pop(sizes.index(value.numel()))
                array = np.ascontiguousarray(array.reshape(tuple(value.shape)))
                arguments[place] = torch.from_numpy(array).to(value.dtype)
        return func(*arguments, **kwargs)

    return change
