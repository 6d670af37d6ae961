"""Axes or operands stand in another order.

What it is: the right numbers in another place: a transpose with another permutation, a reshape that should have been
a transpose, operands of a concatenation or a subtraction exchanged.

Why it happens: where two dims have the same size no shape check notices.

How to see it: the node's values are the module's in another order, and another permutation makes the answers right.

How to fix it: export again, or take the mended file.

Example: `Tensor.unfold` with as many windows as the window is long.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import onnx
import torch

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Variant,
    call_instead,
    skip_call,
    with_arguments,
)
from onnxproof.diagnosis.counterfactuals.other_values import try_other_values
from onnxproof.diagnosis.counterfactuals.swapped_operator import (
    try_exchanged_operands,
    try_exchanged_pieces,
)
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    attribute_value,
    node_name,
    set_attribute,
)
from onnxproof.numerics.relative_error import relative_error
from onnxproof.reference.traced_value import TracedValue

TITLE = "axes or operands stand in another order"
PRICE = 16
CODES = ("axis-order", "attribute", "cache", "input-order", "masking", "missing-op")
_MOST_SLICES = 2048
"""Slices of one axis that are compared pair by pair. Not measured."""
_MOST_ORDERS = 120
"""Orders of axes that are tried in the file: all of five axes."""
_MOST_CALL_ORDERS = 720
"""Orders of axes that are tried in a call of the module: all of six axes."""
_MOST_AXES = 5
_TINY = 1e-12
"""Distance up to which two slices of zeros are the same."""
_CACHE_NAMES = ("past", "cache", "pk", "pv", "key_cache", "value_cache")
GraphChange = Callable[[onnx.GraphProto], None]


def test(workbench: Workbench) -> Tried | str:
    """Other orders of axes and operands in the module's own calls, and in the located nodes."""
    return workbench.try_in_reference(
        partial(_variants, workbench), views=True, remedy=lambda: _mend_nodes(workbench)
    )


def _variants(workbench: Workbench, entry: TracedValue) -> Iterator[Variant]:
    if not entry.inputs and entry.op != "cat":
        return  # a view of a parameter: that is a matter of weights
    if entry.op in ("transpose", "permute", "t"):
        yield Variant(what="left out", change=skip_call())
    if entry.op == "permute":
        orders = itertools.permutations(range(len(entry.sketch.shape)))
        for order in itertools.islice(orders, _MOST_CALL_ORDERS):
            dims = list(order)
            yield Variant(what=f"with dims={dims}", change=with_arguments(dims=dims))
    if entry.op in ("cat", "stack"):
        join = getattr(torch, entry.op)
        yield Variant(
            what="in the reverse order",
            change=call_instead(lambda tensors, *rest: join(list(tensors)[::-1], *rest)),
            code=_joining_code(workbench),
        )
    if entry.op in ("sub", "div", "matmul", "mm", "bmm", "pow"):
        function = getattr(torch, entry.op)
        yield Variant(
            what="with its operands exchanged",
            change=call_instead(lambda a, b: function(torch.as_tensor(b), a)),
        )


def _mend_nodes(workbench: Workbench) -> Tried | str:
    """Operands exchanged, or pieces of a Split, then another permutation, then a transpose before a reshape, then values put back in order, then another value that is read."""
    return (
        _exchange_operands(workbench)
        or try_exchanged_pieces(workbench)
        or _try_permutations(workbench)
        or _transpose_before_reshape(workbench)
        or _reorder_values(workbench)
        or try_other_values(workbench)
        or "no other order of axes or operands mends a named node"
    )


def _exchange_operands(workbench: Workbench) -> Tried | None:
    exchanged = try_exchanged_operands(
        workbench, ("Concat", "Sub", "Div", "Where", "MatMul", "Pow")
    )
    if exchanged is None:
        return None
    node, model = exchanged
    code = "axis-order"
    if node.op_type == "Concat":
        code = _joining_code(workbench)
    elif node.op_type == "Where":
        code = "masking"
    name = node_name(node)
    return workbench.try_model(
        model,
        code=code,
        evidence=f"with the operands of {name} ({node.op_type}) exchanged the answers are right",
        fix=f"exchange the operands of {name}",
    )


def _joining_code(workbench: Workbench) -> str:
    """What is joined in another order is a matter of the cache, where the model keeps one."""
    inputs = [*workbench.scene.signature.inputs, *workbench.model.graph.input]
    if any(info.name.lower().startswith(_CACHE_NAMES) for info in inputs):
        return "cache"
    return "axis-order"


def _try_permutations(workbench: Workbench) -> Tried | None:
    """A Transpose with another permutation."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        perm = attribute_value(node, "perm")
        if node.op_type != "Transpose" or perm is None:
            continue
        name = node_name(node)
        for order in _other_orders(perm):
            change = partial(set_attribute, name="perm", value=order)
            tried = workbench.try_model(
                workbench.with_node(node, change),
                evidence=f"with perm={order} in {name} the answers are right",
                fix=f"set `perm` of {name} to {order}",
            )
            if tried is not None:
                return tried
    return None


def _other_orders(axes: Sequence[int]) -> Iterator[list[int]]:
    """Every other order of some axes, as far as they are tried."""
    for order in itertools.islice(itertools.permutations(axes), 1, _MOST_ORDERS):
        yield list(order)


def _transpose_before_reshape(workbench: Workbench) -> Tried | None:
    """A reshape that reads its input untransposed: the right numbers in the right shape, and each in another's place."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        if node.op_type not in ("Reshape", "Flatten"):
            continue
        value = workbench.value(node.input[0])
        if value is None or not 2 <= value.ndim <= _MOST_AXES:
            continue
        name = node_name(node)
        for order in _other_orders(range(value.ndim)):
            transpose = onnx.helper.make_node(
                "Transpose", [node.input[0]], [f"{node.output[0]}_turned"], perm=order
            )
            tried = workbench.try_model(
                _insert_before(workbench, node, transpose),
                evidence=f"with the input of {name} transposed by {order} first the answers are right",
                fix=f"transpose the input of {name} by {order}",
            )
            if tried is not None:
                return tried
    return None


def _insert_before(
    workbench: Workbench, node: onnx.NodeProto, inserted: onnx.NodeProto
) -> onnx.ModelProto:
    def change(graph: onnx.GraphProto) -> None:
        place = [n.output[0] for n in graph.node].index(node.output[0])
        graph.node[place].input[0] = inserted.output[0]
        graph.node.insert(place, inserted)

    return workbench.with_graph(change)


def _reorder_values(workbench: Workbench) -> Tried | None:
    """The module's values with their axes, or their slices along one axis, in another order: put back in each located node, one after the other."""
    changes: list[GraphChange] = []
    evidence: list[str] = []
    nodes = workbench.nodes[: limits.SUSPECTS_MENDED_TOGETHER]
    values = workbench.values([node.output[0] for node in nodes])
    for node in nodes:
        reordering = _reordering(workbench, node, values.get(node.output[0]))
        if reordering is None:
            continue
        change, what = reordering
        name = node_name(node)
        changes.append(change)
        evidence.append(f"{name} has the module's values with {what}")
        tried = workbench.try_model(
            workbench.with_graph(partial(_apply_all, changes=tuple(changes))),
            evidence=f"{'; '.join(evidence[:4])}; put back in order, the answers are right",
            fix=f"put the values of {name} back in order",
        )
        if tried is not None:
            return tried
    return None


def _reordering(
    workbench: Workbench, node: onnx.NodeProto, value: Array | None
) -> tuple[GraphChange, str] | None:
    """The change that puts a node's values back in the module's order, and what is wrong in words."""
    if _has_float_weights(workbench, node):
        return None  # it is the weights that stand in another order
    if node.op_type == "TopK":
        return None  # the order is what its attributes say
    entry = workbench.counterpart(node)
    if entry is None:
        return None
    truth = workbench.located.fetch(entry.place)
    if value is None or truth is None or value.dtype.kind != "f":
        return None
    output = node.output[0]
    return _reorder_axes(value, truth, output) or _reorder_slices(value, truth, output)


def _has_float_weights(workbench: Workbench, node: onnx.NodeProto) -> bool:
    return any(
        value.dtype.kind == "f" and value.size > 1 for _, _, value in workbench.constants(node)
    )


def _reorder_axes(value: Array, truth: Array, output: str) -> tuple[GraphChange, str] | None:
    if value.ndim > _MOST_AXES:
        return None
    for order in _other_orders(range(value.ndim)):
        transposed = value.transpose(order)
        if (
            transposed.shape == truth.shape
            and relative_error(transposed, truth) < limits.SAME_VALUES
        ):
            node = onnx.helper.make_node("Transpose", [""], [output], perm=order)
            change = partial(_insert_after, output=output, node=node)
            return change, f"its axes in another order ({order} puts them back)"
    return None


def _reorder_slices(value: Array, truth: Array, output: str) -> tuple[GraphChange, str] | None:
    if value.shape != truth.shape:
        return None
    for axis, count in enumerate(value.shape):
        if not 1 < count <= _MOST_SLICES:
            continue
        order = slice_order(value, truth, axis)
        if order is not None:
            change = partial(_reorder_with_node, output=output, axis=axis, order=order)
            return (
                change,
                f"its slices along axis {axis} in another order ({order[:16]} puts them back)",
            )
    return None


def _apply_all(graph: onnx.GraphProto, *, changes: Sequence[GraphChange]) -> None:
    for change in changes:
        change(graph)


def slice_order(value: Array, truth: Array, axis: int) -> list[int] | None:
    """For each of the module's slices the place where the file has it; None where one is nowhere, several are in one place, or all are in theirs."""
    ours = _rows(value, axis)
    wanted = _rows(truth, axis)
    if not (np.isfinite(ours).all() and np.isfinite(wanted).all()):
        return None
    our_norms = (ours**2).sum(1)
    wanted_norms = (wanted**2).sum(1)
    squares = our_norms[None] + wanted_norms[:, None] - 2 * wanted @ ours.T
    distances = np.sqrt(np.maximum(squares, 0))
    order = distances.argmin(1)
    in_place = np.arange(len(order))
    nearest = distances[in_place, order]
    allowed = limits.SAME_VALUES * np.sqrt(wanted_norms) + _TINY
    if not (nearest <= allowed).all() or np.array_equal(order, in_place):
        return None
    if len(set(order.tolist())) < len(order):
        return None  # slices that stand in several places are another operation: a reflection, a repetition
    return [int(place) for place in order]


def _rows(array: Array, axis: int) -> Array:
    """The slices along an axis as rows of a matrix."""
    wide = array.astype(np.float64)
    return np.moveaxis(wide, axis, 0).reshape(array.shape[axis], -1)


def _reorder_with_node(graph: onnx.GraphProto, *, output: str, axis: int, order: list[int]) -> None:
    """Put slices back; a reversal in a way that holds for every length."""
    if order == list(range(len(order)))[::-1]:
        operands = {"starts": [-1], "ends": [-(2**31)], "axes": [axis], "steps": [-1]}
        node = onnx.helper.make_node("Slice", [""], [output])
    else:
        operands = {"order": order}
        node = onnx.helper.make_node("Gather", [""], [output], axis=axis)
    for operand, numbers in operands.items():
        name = f"{output}_{operand}"
        node.input.append(name)
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(numbers, np.int64), name))
    _insert_after(graph, output=output, node=node)


def _insert_after(graph: onnx.GraphProto, *, output: str, node: onnx.NodeProto) -> None:
    """Let a node stand between a value and all its readers."""
    place = [n.output[0] for n in graph.node].index(output)
    before = f"{output}_before"
    graph.node[place].output[0] = before
    node.input[0] = before
    graph.node.insert(place + 1, node)
