"""Operands, axes and pieces in another order."""

from itertools import permutations
from random import Random

import numpy as np

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind


@kind("concat-order", "axis-order", "cache")
def concat_order(graph: Graph, rng: Random) -> Mutation | None:
    """Two computed pieces of a Concat exchanged."""
    nodes = [node for node in graph.nodes("Concat") if len(set(node.input)) > 1]
    nodes = [node for node in nodes if graph.is_float(node.input[0])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    pieces = list(node.input)
    first, second = rng.sample(range(len(pieces)), 2)
    pieces[first], pieces[second] = pieces[second], pieces[first]
    del node.input[:]
    node.input.extend(pieces)
    return at(node, f"pieces {first} and {second} of Concat exchanged")


@kind("operands-exchanged", "axis-order")
def operands_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """b - a for a - b, or b / a for a / b."""
    nodes = [node for node in graph.nodes("Sub", "Div") if graph.is_float(node.output[0])]
    nodes = [node for node in nodes if node.input[0] != node.input[1]]
    if not nodes:
        return None
    node = rng.choice(nodes)
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return at(node, f"operands of {node.op_type} exchanged")


@kind("matmul-exchanged", "axis-order")
def matmul_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """b @ a for a @ b, where the shapes allow it."""
    nodes = []
    for node in graph.nodes("MatMul"):
        left, right = graph.shape(node.input[0]), graph.shape(node.input[1])
        square = left is not None and right is not None and left[-2:] == right[-2:]
        if square and left is not None and left[-1] == left[-2]:
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return at(node, "operands of MatMul exchanged")


@kind("transpose-perm", "axis-order", "attribute")
def transpose_perm(graph: Graph, rng: Random) -> Mutation | None:
    """A permutation that gives the same shape and another order, because two sizes are equal."""
    choices = []
    for node in graph.nodes("Transpose"):
        shape = graph.shape(node.input[0])
        if shape is None:
            continue
        now = list(graph.attribute(node, "perm", list(range(len(shape)))[::-1]))
        for perm in permutations(range(len(shape))):
            alike = all(shape[a] == shape[b] for a, b in zip(perm, now, strict=True))
            if alike and list(perm) != now:
                choices.append((node, list(perm)))
    if not choices:
        return None
    node, perm = rng.choice(choices)
    graph.set_attribute(node, "perm", perm)
    return at(node, f"perm {perm} in Transpose")


@kind("split-order", "axis-order", "weight-layout")
def split_order(graph: Graph, rng: Random) -> Mutation | None:
    """Two pieces of a Split taken for each other."""
    nodes = []
    for node in graph.nodes("Split"):
        shapes = [graph.shape(name) for name in node.output]
        if len(shapes) > 1 and len(set(shapes)) == 1 and graph.is_float(node.input[0]):
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    names = list(node.output)
    first, second = rng.sample(range(len(names)), 2)
    if graph.is_output(names[first]) or graph.is_output(names[second]):
        return None
    names[first], names[second] = names[second], names[first]
    del node.output[:]
    node.output.extend(names)
    readers = [reader for name in (names[first], names[second]) for reader in graph.consumers(name)]
    return at([node, *readers], f"pieces {first} and {second} of Split exchanged")


@kind("reshape-for-transpose", "axis-order")
def reshape_for_transpose(graph: Graph, rng: Random) -> Mutation | None:
    """A Reshape to the right shape where the data should be transposed."""
    nodes = []
    for node in graph.nodes("Transpose"):
        shape = graph.shape(node.output[0])
        if (
            shape is not None
            and graph.is_float(node.input[0])
            and sum(size > 1 for size in shape) > 1
        ):
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    shape = list(graph.shape(node.output[0]) or ())
    sizes = [-1 if axis == 0 else size for axis, size in enumerate(shape)]
    name = graph.add_constant(np.array(sizes, np.int64), "shape")
    node.op_type = "Reshape"
    del node.attribute[:]
    node.input.append(name)
    return at(node, f"Reshape to {sizes} for a Transpose")


@kind("outputs-exchanged", "output-order", "cache")
def outputs_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """Two outputs of one shape under each other's name."""
    shapes = [(graph.shape(output.name), graph.dtype(output.name)) for output in graph.proto.output]
    pairs = [
        (first, second)
        for second in range(len(shapes))
        for first in range(second)
        if shapes[first] == shapes[second]
    ]
    if not pairs:
        return None
    first, second = rng.choice(pairs)
    names = [graph.proto.output[first].name, graph.proto.output[second].name]
    for node in graph.proto.node:
        for place, name in enumerate(node.output):
            if name in names:
                node.output[place] = names[1 - names.index(name)]
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[1 - names.index(name)]
    producers = [node for node in graph.proto.node if set(names).intersection(node.output)]
    return at(producers, f"outputs {names[0]} and {names[1]} exchanged")


@kind("inputs-exchanged", "axis-order", "missing-op", "mutation")
def inputs_exchanged(graph: Graph, rng: Random) -> Mutation | None:
    """A node reads another value of the same shape, computed by a sibling."""
    choices = []
    seen: list[str] = []
    for node in graph.proto.node:
        for place, name in enumerate(node.input):
            shape = graph.shape(name) if name and name not in graph.constants else None
            if shape is None or not graph.is_float(name) or len(shape) < 2:
                continue
            others = [other for other in seen if other != name and graph.shape(other) == shape]
            if others and node.op_type in ("MatMul", "Gemm", "Conv", "LayerNormalization"):
                choices.append((node, place, rng.choice(others[-6:])))
        seen += [name for name in node.output if name]
    if not choices:
        return None
    node, place, other = rng.choice(choices)
    old = node.input[place]
    node.input[place] = other
    return at(node, f"{node.op_type} reads {other} for {old}")
