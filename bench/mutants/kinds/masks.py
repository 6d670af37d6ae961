"""Masks and positions."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind


def _fills(graph: Graph) -> list[tuple[onnx.NodeProto, int, float]]:
    """Large negative numbers that a Where puts in, or that are multiplied with a mask."""
    found = []
    for node in graph.nodes("Where", "Mul", "Add"):
        for place in range(len(node.input)):
            value = graph.constant(node, place)
            if value is None or value.dtype != np.float32 or value.size == 0:
                continue
            if float(value.min()) < -1e3:
                found.append((node, place, float(value.min())))
    return found


@kind("weak-fill", "masking")
def weak_fill(graph: Graph, rng: Random) -> Mutation | None:
    """The number that hides a place is too small to hide it."""
    places = _fills(graph)
    if not places:
        return None
    node, place, old = rng.choice(places)
    new = rng.choice([-1.0, -4.0, -6.0, 0.0])
    value = graph.constants[node.input[place]]
    graph.write(node, place, np.where(value < -1e3, np.float32(new), value))
    return at(node, f"fill {new} for {old:.3g}")


def _masks(graph: Graph) -> list[tuple[onnx.NodeProto, int]]:
    """Where nodes with floats, and bool masks that a Cast makes numbers of, each with the place of its mask."""
    found = [(node, 0) for node in graph.nodes("Where") if graph.is_float(node.output[0])]
    for node in graph.nodes("Cast"):
        if graph.dtype(node.input[0]) == np.bool_ and graph.is_float(node.output[0]):
            found.append((node, 0))
    return [(node, place) for node, place in found if node.input[place] not in graph.constants]


@kind("mask-inverted", "masking", "axis-order")
def mask_inverted(graph: Graph, rng: Random) -> Mutation | None:
    """What should be seen is hidden and the other way round."""
    places = _masks(graph)
    if not places:
        return None
    node, place = rng.choice(places)
    made = graph.insert_before(node, "Not", [node.input[place]])
    node.input[place] = made.output[0]
    return at([made, node], "the mask is inverted")


@kind("mask-ignored", "masking", "missing-op", "baked-branch")
def mask_ignored(graph: Graph, rng: Random) -> Mutation | None:
    """A Where that always takes what it takes for most of the example."""
    nodes = [node for node, _ in _masks(graph) if node.op_type == "Where"]
    nodes = [node for node in nodes if not graph.is_output(node.output[0])]
    nodes = [
        node
        for node in nodes
        if graph.shape(node.input[2]) == graph.shape(node.output[0])
        or graph.shape(node.input[1]) == graph.shape(node.output[0])
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    keeps_second = graph.shape(node.input[1]) == graph.shape(node.output[0])
    source = node.input[1] if keeps_second else node.input[2]
    readers, op_name = graph.consumers(node.output[0]), node.name
    producer = graph.producer(source)
    if not graph.bypass(node, source):
        return None
    graph.drop_unused()
    left = {other.name for other in graph.proto.node}
    guilty = [
        other for other in [*readers, *([producer] if producer else [])] if other.name in left
    ]
    return at(guilty, f"the mask of {op_name} is ignored")


@kind("mask-shifted", "masking", "comparison")
def mask_shifted(graph: Graph, rng: Random) -> Mutation | None:
    """A causal or length mask whose border moved by one."""
    nodes = []
    for node in graph.nodes("Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        if graph.dtype(node.input[0]) == np.int64:
            nodes.append(node)
    nodes += [node for node in graph.nodes("Trilu") if len(node.input) > 1]
    if not nodes:
        return None
    node = rng.choice(nodes)
    if node.op_type == "Trilu":
        old = graph.constant(node, 1)
        shift = 1 if old is None else old + 1
        name = graph.add_constant(np.array(shift, np.int64).reshape(()), "diagonal")
        node.input[1] = name
        return at(node, "the diagonal moved by one", "masking", "attribute", "comparison")
    one = graph.add_constant(np.array(rng.choice([-1, 1]), np.int64), "one")
    made = graph.insert_before(node, "Add", [node.input[1], one])
    node.input[1] = made.output[0]
    return at(
        [made, node],
        "the border of a comparison moved by one",
        "masking",
        "comparison",
        "attribute",
        "position",
        "mutation",
    )


def _positions(graph: Graph) -> list[tuple[onnx.NodeProto, int]]:
    """Gathers from a table by computed or constant positions 0, 1, 2, ..."""
    found = []
    for node in graph.nodes("Gather"):
        table = graph.constant(node, 0)
        indices = graph.constants.get(node.input[1], graph.values.get(node.input[1]))
        if table is None or table.ndim != 2 or indices is None or indices.size < 2:
            continue
        if (np.diff(indices.ravel()[: indices.shape[-1]]) == 1).all():
            found.append((node, 1))
    return found


@kind("positions-shifted", "position", "attribute")
def positions_shifted(graph: Graph, rng: Random) -> Mutation | None:
    """Positions counted from one."""
    places = _positions(graph)
    if not places:
        return None
    node, place = rng.choice(places)
    one = graph.add_constant(np.array(1, np.int64), "one")
    made = graph.insert_before(node, "Add", [node.input[place], one])
    node.input[place] = made.output[0]
    return at([made, node], "positions counted from one")


@kind("positions-frozen", "position", "baked-value", "attribute")
def positions_frozen(graph: Graph, rng: Random) -> Mutation | None:
    """Every place has the first position."""
    places = _positions(graph)
    if not places:
        return None
    node, place = rng.choice(places)
    zero = graph.add_constant(np.array(0, np.int64), "zero")
    made = graph.insert_before(node, "Mul", [node.input[place], zero])
    node.input[place] = made.output[0]
    return at([made, node], "every place has the first position")
