"""The right weights at the wrong place: two nodes that read each other's, and gates in another framework's order."""

import itertools
from collections.abc import Iterator, Mapping
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
from onnxproof.onnxmodel import mapped_weights

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
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
    """Other nodes of the same kind with weights of the same shapes, and the operands to exchange: all, then each.

    Those that hold a weight of the located module come first, then the nearest: a model of many blocks has hundreds.
    """
    weights = _weights(workbench.model.graph)
    shapes = _float_shapes(node, weights)
    if not shapes:
        return
    choices = dict.fromkeys([tuple(shapes), *((place,) for place in shapes)])
    wanted = _fingerprints_of_module(workbench)
    matching, near = [], []
    for other in _nearest_alike(workbench.model.graph, node, weights):
        held = (mapped_weights.to_array(weights[other.input[place]]) for place in shapes)
        if wanted and not wanted.isdisjoint(map(_fingerprint, held)):
            matching.append(other)
        else:
            near.append(other)
    for other in (*matching, *near[: limits.EXCHANGES_TRIED]):
        yield from ((other, places) for places in choices)


def _nearest_alike(
    graph: onnx.GraphProto, node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]
) -> list[onnx.NodeProto]:
    """Other nodes of the same kind with weights of the same shapes, the nearest first."""
    shapes = _float_shapes(node, weights)
    alike = [
        place
        for place, other in enumerate(graph.node)
        if other.op_type == node.op_type and _float_shapes(other, weights).items() >= shapes.items()
    ]
    here = next(place for place in alike if graph.node[place].output[0] == node.output[0])
    alike.remove(here)
    return [graph.node[place] for place in sorted(alike, key=lambda place: abs(place - here))]


def _weights(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Initializers and the tensors of Constant nodes by name."""
    weights = {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    weights.update({tensor.name: tensor for tensor in graph.initializer})
    return weights


def _float_shapes(
    node: onnx.NodeProto, weights: Mapping[str, onnx.TensorProto]
) -> dict[int, tuple[int, ...]]:
    """The shapes of a node's float weights by their place."""
    shapes = {}
    for place, name in enumerate(node.input):
        tensor = weights.get(name)
        if tensor is not None and tensor.data_type in _FLOATS and int(np.prod(tensor.dims)) > 1:
            shapes[place] = tuple(tensor.dims)
    return shapes


def _fingerprints_of_module(workbench: Workbench) -> set[tuple[float, ...]]:
    """Of the weights that the located module has itself; none where it is not known."""
    session = workbench.scene.reference.session
    if session is None or not workbench.location.module:
        return set()
    try:
        module = session.module.get_submodule(workbench.location.module)
    except AttributeError:
        return set()
    parameters = module.parameters(recurse=False)
    return {_fingerprint(parameter.detach().float().numpy()) for parameter in parameters}


def _fingerprint(value: Array) -> tuple[float, ...]:
    """The same for a matrix and its transpose: the least and largest elements of all."""
    flat = value.reshape(-1)
    if not flat.size:
        return ()
    return float(flat.min()), float(flat.max()), float(np.abs(flat).min()), float(flat.size)


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
            value = mapped_weights.to_array(weights[node.input[place]])
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
        value = mapped_weights.to_array(weights[node.input[place]])
        blocks = len(order)
        if place == 3:
            blocks *= 2
        rows = value.shape[1] // blocks
        by_gate = value.reshape(value.shape[0], -1, len(order), rows, *value.shape[2:])
        permuted = by_gate[:, :, list(order)].reshape(value.shape)
        node.input[place] = f"{output}_gates_{place}"
        graph.initializer.append(make_tensor(permuted, node.input[place]))
