"""Rewrites that leave every node where it was, or say the same with other nodes."""

from random import Random

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, twin


@twin("identity-inserted")
def identity_inserted(graph: Graph, rng: Random) -> Mutation | None:
    """Some values pass through an Identity."""
    names = [node.output[0] for node in graph.proto.node if graph.is_float(node.output[0])]
    chosen = rng.sample(names, min(3, len(names)))
    made = [graph.insert_after(name, "Identity") for name in chosen]
    return at(made, f"{len(made)} Identity nodes")


@twin("operands-of-add")
def operands_of_add(graph: Graph, rng: Random) -> Mutation | None:
    """Every Add and Mul has its operands exchanged."""
    nodes = graph.nodes("Add", "Mul")
    for node in nodes:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    return at(nodes, "operands of Add and Mul exchanged") if nodes else None


@twin("reciprocal-of-power-of-two")
def reciprocal(graph: Graph, rng: Random) -> Mutation | None:
    """A division by a power of two is a product."""
    changed = []
    for node in graph.nodes("Div"):
        value = graph.constant(node, 1)
        if value is None or value.dtype != np.float32 or not value.all():
            continue
        if (np.abs(np.frexp(value)[0]) == 0.5).all():
            node.op_type = "Mul"
            graph.write(node, 1, 1 / value)
            changed.append(node)
    return at(changed, "Div by a power of two as Mul") if changed else None


@twin("mul-as-div")
def mul_as_div(graph: Graph, rng: Random) -> Mutation | None:
    """A product with a constant power of two is a division."""
    changed = []
    for node in graph.nodes("Mul"):
        value = graph.constant(node, 1)
        if value is None or value.dtype != np.float32 or not value.all():
            continue
        if (np.abs(np.frexp(value)[0]) == 0.5).all():
            node.op_type = "Div"
            graph.write(node, 1, 1 / value)
            changed.append(node)
    return at(changed, "Mul by a power of two as Div") if changed else None


@twin("transposes-that-cancel")
def transposes_that_cancel(graph: Graph, rng: Random) -> Mutation | None:
    """A value is transposed and transposed back."""
    names = []
    for node in graph.proto.node:
        shape = graph.shape(node.output[0])
        if graph.is_float(node.output[0]) and shape is not None and len(shape) > 1:
            names.append(node.output[0])
    if not names:
        return None
    value = rng.choice(names)
    perm = list(range(len(graph.shape(value) or ())))
    rng.shuffle(perm)
    back = graph.insert_after(value, "Transpose", perm=[perm.index(k) for k in range(len(perm))])
    there = graph.insert_after(back.input[0], "Transpose", perm=perm)
    return at([there, back], f"Transpose {perm} and back")


@twin("reshape-through-flat")
def reshape_through_flat(graph: Graph, rng: Random) -> Mutation | None:
    """A Reshape goes by way of a flat tensor."""
    nodes = [node for node in graph.nodes("Reshape") if not graph.attribute(node, "allowzero", 0)]
    nodes = [node for node in nodes if 0 not in _shape_of(graph, node)]
    if not nodes:
        return None
    node = rng.choice(nodes)
    flat = graph.add_constant(np.array([-1], np.int64), "flat")
    made = graph.insert_before(node, "Reshape", [node.input[0], flat])
    node.input[0] = made.output[0]
    return at([made, node], "Reshape by way of a flat tensor")


def _shape_of(graph: Graph, node: onnx.NodeProto) -> list[int]:
    """What the Reshape is asked for; a zero copies a size of the input and can't follow a flat tensor."""
    for source in (graph.constants, graph.values):
        if node.input[1] in source:
            return [int(size) for size in source[node.input[1]]]
    return [0]


@twin("constants-as-nodes")
def constants_as_nodes(graph: Graph, rng: Random) -> Mutation | None:
    """Initializers become Constant nodes."""
    held = list(graph.proto.initializer)
    del graph.proto.initializer[:]
    for place, tensor in enumerate(held):
        node = helper.make_node(
            "Constant", [], [tensor.name], name=f"constant_{place}", value=tensor
        )
        graph.proto.node.insert(0, node)
    return Mutation(guilty=(), what=f"{len(held)} initializers as Constant nodes") if held else None


@twin("nodes-as-constants")
def nodes_as_constants(graph: Graph, rng: Random) -> Mutation | None:
    """Constant nodes become initializers."""
    count = len(graph.constant_nodes)
    for name, node in graph.constant_nodes.items():
        value = graph.constants[name]
        graph.proto.initializer.append(numpy_helper.from_array(value, name))
        graph.proto.node.remove(node)
    return Mutation(guilty=(), what=f"{count} Constant nodes as initializers") if count else None


@twin("nodes-renamed")
def nodes_renamed(graph: Graph, rng: Random) -> Mutation | None:
    """Every node and inner value has another name."""
    fixed = {value.name for value in [*graph.proto.input, *graph.proto.output]}
    fixed |= {tensor.name for tensor in graph.proto.initializer}
    if any(
        attribute.type == onnx.AttributeProto.GRAPH
        for node in graph.proto.node
        for attribute in node.attribute
    ):
        return None
    renamed: dict[str, str] = {}
    for place, node in enumerate(graph.proto.node):
        node.name = f"n{place}"
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name and name not in fixed:
                    names[position] = renamed.setdefault(name, f"v{len(renamed)}")
    return Mutation(guilty=(), what="nodes and values renamed")


@twin("weights-renamed")
def weights_renamed(graph: Graph, rng: Random) -> Mutation | None:
    """Initializers lose the names of the module's parameters."""
    names = {tensor.name: f"w{place}" for place, tensor in enumerate(graph.proto.initializer)}
    if any(
        attribute.type == onnx.AttributeProto.GRAPH
        for node in graph.proto.node
        for attribute in node.attribute
    ):
        return None
    for tensor in graph.proto.initializer:
        tensor.name = names[tensor.name]
    for node in graph.proto.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
    return Mutation(guilty=(), what=f"{len(names)} initializers renamed") if names else None


@twin("other-order-of-a-sum")
def other_order(graph: Graph, rng: Random) -> Mutation | None:
    """The addends of a product stand in another order: columns of one side and rows of the other, permuted alike."""
    nodes = []
    for node in graph.nodes("MatMul"):
        value = graph.constant(node, 1)
        if value is not None and value.ndim == 2 and value.shape[0] > 1:
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    value = graph.constants[node.input[1]]
    order = list(range(value.shape[0]))
    rng.shuffle(order)
    picks = graph.add_constant(np.array(order, np.int64), "order")
    made = graph.insert_before(node, "Gather", [node.input[0], picks], axis=-1)
    node.input[0] = made.output[0]
    graph.write(node, 1, value[order])
    return at([made, node], "the addends of a MatMul in another order")


@twin("matmul-add-as-gemm")
def matmul_add_as_gemm(graph: Graph, rng: Random) -> Mutation | None:
    """A product of two matrices and its bias become one Gemm."""
    for node in graph.nodes("MatMul"):
        shape = graph.shape(node.input[0])
        readers = graph.consumers(node.output[0])
        if shape is None or len(shape) != 2 or [reader.op_type for reader in readers] != ["Add"]:
            continue
        bias = [name for name in readers[0].input if name != node.output[0]]
        if len(bias) != 1 or bias[0] not in graph.constants or graph.shape(node.input[1]) is None:
            continue
        readers[0].op_type = "Gemm"
        del readers[0].input[:]
        readers[0].input.extend([*node.input, bias[0]])
        graph.proto.node.remove(node)
        return at(readers[0], "MatMul and Add as Gemm")
    return None


@twin("gemm-as-matmul-add")
def gemm_as_matmul_add(graph: Graph, rng: Random) -> Mutation | None:
    """A Gemm becomes a product and an Add."""
    for node in graph.nodes("Gemm"):
        weight = graph.constant(node, 1)
        plain = all(graph.attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta"))
        if weight is None or not plain or len(node.input) < 3 or graph.attribute(node, "transA", 0):
            continue
        if graph.attribute(node, "transB", 0):
            weight = weight.T
        name = graph.add_constant(weight, "weight")
        made = graph.insert_before(node, "MatMul", [node.input[0], name])
        bias = node.input[2]
        node.op_type = "Add"
        del node.attribute[:]
        del node.input[:]
        node.input.extend([made.output[0], bias])
        return at([made, node], "Gemm as MatMul and Add")
    return None
