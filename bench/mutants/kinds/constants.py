"""A number in the graph is another one."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Array, Graph
from bench.mutants.mutation import Mutation, at, kind


def _scalars(graph: Graph, *op_types: str) -> list[tuple[onnx.NodeProto, int, float]]:
    """Float constants of one element at the inputs of nodes of these types."""
    found = []
    for node in graph.nodes(*op_types):
        for place in range(len(node.input)):
            value = graph.constant(node, place)
            if value is not None and value.size == 1 and value.dtype == np.float32:
                found.append((node, place, float(value.reshape(()))))
    return found


def _put(graph: Graph, node: onnx.NodeProto, place: int, number: float) -> None:
    old = graph.constants[node.input[place]]
    graph.write(node, place, np.full(old.shape, number, old.dtype))


@kind("scale-factor", "attribute")
def scale_factor(graph: Graph, rng: Random) -> Mutation | None:
    """The factor of an attention or of a gain: the root taken twice, another width, twice as much."""
    places = [item for item in _scalars(graph, "Mul", "Div") if abs(item[2]) not in (0.0, 1.0)]
    if not places:
        return None
    node, place, old = rng.choice(places)
    new = rng.choice([old * 2, old / 2, old * old, old * 1.05])
    _put(graph, node, place, new)
    return at(node, f"factor {new:.6g} for {old:.6g} in {node.op_type}")


@kind("epsilon-added", "attribute", "clipping")
def epsilon_added(graph: Graph, rng: Random) -> Mutation | None:
    """The small number that is added before a root, a logarithm or a division."""
    places = [item for item in _scalars(graph, "Add") if 0 < abs(item[2]) < 1e-2]
    if not places:
        return None
    node, place, old = rng.choice(places)
    new = old * rng.choice([1e2, 1e3, 1e4])
    _put(graph, node, place, new)
    return at(node, f"epsilon {new:.3g} for {old:.3g}")


@kind("addend", "attribute")
def addend(graph: Graph, rng: Random) -> Mutation | None:
    """A number that is added or subtracted."""
    places = [item for item in _scalars(graph, "Add", "Sub") if 1e-2 <= abs(item[2]) < 1e3]
    if not places:
        return None
    node, place, old = rng.choice(places)
    new = rng.choice([-old, old * 1.1, old + 1])
    _put(graph, node, place, new)
    return at(node, f"{new:.6g} for {old:.6g} in {node.op_type}")


@kind("clip-bounds", "clipping")
def clip_bounds(graph: Graph, rng: Random) -> Mutation | None:
    """A bound of a Clip moved or dropped."""
    places = [item for item in _scalars(graph, "Clip", "Min", "Max") if abs(item[2]) < 1e30]
    if not places:
        return None
    node, place, old = rng.choice(places)
    if node.op_type == "Clip" and rng.random() < 0.4:
        node.input[place] = ""
        return at(node, f"the bound {old:.4g} of Clip dropped")
    new = rng.choice([old * 1.5, old * 0.75, old + 1])
    _put(graph, node, place, new)
    return at(node, f"bound {new:.4g} for {old:.4g} in {node.op_type}")


@kind("power", "attribute")
def power(graph: Graph, rng: Random) -> Mutation | None:
    """Another exponent."""
    places = _scalars(graph, "Pow")
    if not places:
        return None
    node, place, old = rng.choice(places)
    new = rng.choice([item for item in (0.5, 1.5, 2.0, 3.0) if item != old])
    _put(graph, node, place, new)
    return at(node, f"power {new} for {old}")


def _integers(graph: Graph, place: int, *op_types: str) -> list[tuple[onnx.NodeProto, Array]]:
    """Whole constants at one input of nodes of these types whose data are floats."""
    found = []
    for node in graph.nodes(*op_types):
        value = graph.constant(node, place)
        if value is not None and value.dtype == np.int64 and graph.is_float(node.input[0]):
            found.append((node, value))
    return found


@kind("gather-index", "attribute", "axis-order")
def gather_index(graph: Graph, rng: Random) -> Mutation | None:
    """An index off by one."""
    choices = []
    for node, value in _integers(graph, 1, "Gather"):
        shape = graph.shape(node.input[0]) or ()
        size = shape[int(graph.attribute(node, "axis", 0))] if shape else 1
        if size > 1 and value.size:
            choices.append((node, value, size))
    if not choices:
        return None
    node, value, size = rng.choice(choices)
    low = value < 0
    other = np.where(
        low, (value + size + 1) % size - size * (value + size + 1 < size), (value + 1) % size
    )
    graph.write(node, 1, other.astype(np.int64))
    return at(node, f"index {other.ravel()[:3]} for {value.ravel()[:3]}")


@kind("slice-shifted", "attribute", "axis-order")
def slice_shifted(graph: Graph, rng: Random) -> Mutation | None:
    """A Slice whose start and end moved by one."""
    choices = []
    for node, starts in _integers(graph, 1, "Slice"):
        ends = graph.constant(node, 2)
        shape, cut = graph.shape(node.input[0]), graph.shape(node.output[0])
        if ends is None or shape is None or cut is None or starts.size != 1 or shape == cut:
            continue
        choices.append((node, starts, ends))
    if not choices:
        return None
    node, starts, ends = rng.choice(choices)
    step = 1 if starts[0] == 0 else -1
    graph.write(node, 1, starts + step)
    graph.write(node, 2, np.where(ends > 2**31, ends, ends + step))
    return at(node, f"slice from {starts[0] + step} for {starts[0]}")


@kind("pad-value", "attribute")
def pad_value(graph: Graph, rng: Random) -> Mutation | None:
    """Padding with another number."""
    nodes = [
        node
        for node in graph.nodes("Pad")
        if graph.attribute(node, "mode", "constant") == "constant"
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    name = graph.add_constant(np.array(rng.choice([0.5, 1.0, -1.0]), np.float32), "padding")
    if len(node.input) > 2:
        node.input[2] = name
    else:
        node.input.append(name)
    return at(node, "another number around the data")
