"""The right weights at the wrong place: two nodes that read each other's, and gates in another framework's order."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    node_name,
    node_with_output,
)

_GATES = {"LSTM": 4, "GRU": 3}
_GATE_OPERANDS = ((1, 2, 3), (1, 2))
"""W, R and B; W and R."""


def make_tensor(value: Array, name: str) -> onnx.TensorProto:
    """An initializer of this name."""
    return onnx.numpy_helper.from_array(np.ascontiguousarray(value), name)


def try_exchanged_weights(workbench: Workbench) -> Tried | None:
    """Two nodes of one kind that read each other's weights."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        for other, places in _exchanges(workbench, node):
            change = partial(_exchange, one=node.output[0], other=other.output[0], places=places)
            names = f"{node_name(node)} and {node_name(other)}"
            tried = workbench.try_model(
                workbench.with_graph(change),
                evidence=f"{names} read each other's weights: exchanged, the answers are right",
                fix=f"exchange the weights of {names}",
            )
            if tried is not None:
                return tried
    return None


def _exchanges(
    workbench: Workbench, node: onnx.NodeProto
) -> Iterator[tuple[onnx.NodeProto, tuple[int, ...]]]:
    """Other nodes of the same kind with weights of the same shapes, and the operands to exchange: all, then each."""
    shapes = {
        place: value.shape
        for place, _, value in workbench.constants(node)
        if value.dtype.kind == "f" and value.size > 1
    }
    if not shapes:
        return
    choices = dict.fromkeys([tuple(shapes), *((place,) for place in shapes)])
    for other in workbench.model.graph.node:
        if other.op_type != node.op_type or other.output[0] == node.output[0]:
            continue
        constants = workbench.constants(other)
        other_shapes = {place: value.shape for place, _, value in constants}
        if other_shapes.items() >= shapes.items():
            yield from ((other, places) for places in choices)


def _exchange(graph: onnx.GraphProto, *, one: str, other: str, places: tuple[int, ...]) -> None:
    first = node_with_output(graph, one).input
    second = node_with_output(graph, other).input
    for place in places:
        first[place], second[place] = second[place], first[place]


def try_gate_orders(workbench: Workbench) -> Tried | None:
    """A recurrent layer whose gates stand in another framework's order: with its bias, then without."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        if node.op_type not in _GATES:
            continue
        name = node_name(node)
        gates = range(_GATES[node.op_type])
        orders = list(itertools.permutations(gates))[1:]
        for places, order in itertools.product(_GATE_OPERANDS, orders):
            change = partial(_permute_gates, output=node.output[0], order=order, places=places)
            tried = workbench.try_model(
                workbench.with_graph(change),
                code="weight-layout",
                evidence=f"with the gates of {name} ({node.op_type}) in the order {list(order)} the answers are right",
                fix=f"put the gates of {name} in the order {list(order)}",
            )
            if tried is not None:
                return tried
    return None


def try_directions(workbench: Workbench) -> Tried | None:
    """A recurrent layer of two directions whose weights belong to the other one: all of them, then each."""
    for node in workbench.nodes[: limits.SUSPECTS_EDITED]:
        if node.op_type not in (*_GATES, "RNN"):
            continue
        name = node_name(node)
        for places in ((1, 2, 3), (1,), (2,), (3,)):
            change = partial(_exchange_directions, output=node.output[0], places=places)
            tried = workbench.try_model(
                workbench.with_graph(change),
                code="weight-layout",
                evidence=f"with the two directions of operands {list(places)} of {name} ({node.op_type}) exchanged the answers are right",
                fix=f"exchange the directions in operands {list(places)} of {name}",
            )
            if tried is not None:
                return tried
    return None


def _exchange_directions(graph: onnx.GraphProto, *, output: str, places: tuple[int, ...]) -> None:
    """W, R and B hold one direction after the other along their first axis."""
    node = node_with_output(graph, output)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for place in places:
        if place < len(node.input) and node.input[place] in weights:
            value = onnx.numpy_helper.to_array(weights[node.input[place]])
            node.input[place] = f"{output}_directions_{place}"
            graph.initializer.append(make_tensor(value[::-1], node.input[place]))


def _permute_gates(
    graph: onnx.GraphProto, *, output: str, order: tuple[int, ...], places: tuple[int, ...]
) -> None:
    """W and R hold a block of rows for each gate; B holds those of both, one after the other."""
    node = node_with_output(graph, output)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for place in places:
        if place >= len(node.input) or node.input[place] not in weights:
            continue
        value = onnx.numpy_helper.to_array(weights[node.input[place]])
        blocks = len(order)
        if place == 3:
            blocks *= 2
        rows = value.shape[1] // blocks
        by_gate = value.reshape(value.shape[0], -1, len(order), rows, *value.shape[2:])
        permuted = by_gate[:, :, list(order)].reshape(value.shape)
        node.input[place] = f"{output}_gates_{place}"
        graph.initializer.append(make_tensor(permuted, node.input[place]))
