"""Values that pass through a narrower type, and values that are frozen to the example's."""

from random import Random

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind

NARROW = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def _computed_floats(graph: Graph) -> list[str]:
    """Float values of more than one element that nodes compute from the input."""
    names = [node.output[0] for node in graph.proto.node if node.op_type != "Constant"]
    kept = []
    for name in names:
        shape = graph.shape(name)
        if graph.is_float(name) and shape is not None and np.prod(shape) > 1:
            kept.append(name)
    return kept


@kind("cast-to-half", "precision")
def cast_to_half(graph: Graph, rng: Random) -> Mutation | None:
    """A value is rounded to half precision or bfloat16 on its way."""
    names = _computed_floats(graph)
    if not names:
        return None
    value, narrow = rng.choice(names), rng.choice(list(NARROW))
    back = graph.insert_after(value, "Cast", to=TensorProto.FLOAT)
    there = graph.insert_after(back.input[0], "Cast", to=NARROW[narrow])
    return at([there, back], f"{value} through {narrow}")


@kind("cast-to-integer", "precision", "rounding", "integer-width")
def cast_to_integer(graph: Graph, rng: Random) -> Mutation | None:
    """A value loses its fraction."""
    names = _computed_floats(graph)
    if not names:
        return None
    value = rng.choice(names)
    back = graph.insert_after(value, "Cast", to=TensorProto.FLOAT)
    there = graph.insert_after(back.input[0], "Cast", to=TensorProto.INT32)
    return at([there, back], f"{value} through int32")


@kind("product-in-half", "precision")
def product_in_half(graph: Graph, rng: Random) -> Mutation | None:
    """A product whose operands are rounded to half precision."""
    nodes = [
        node for node in graph.nodes("MatMul", "Conv", "Gemm") if graph.is_float(node.output[0])
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    guilty = [node]
    for place in range(2):
        there = graph.insert_before(node, "Cast", [node.input[place]], to=TensorProto.FLOAT16)
        back = graph.insert_before(node, "Cast", [there.output[0]], to=TensorProto.FLOAT)
        node.input[place] = back.output[0]
        guilty += [there, back]
    return at(guilty, f"operands of {node.op_type} in float16")


@kind("value-baked", "baked-value")
def value_baked(graph: Graph, rng: Random) -> Mutation | None:
    """A computed value of the example was written into the file, one row for all."""
    nodes = []
    for node in graph.nodes(
        "ReduceMean", "ReduceSum", "ReduceMax", "Sigmoid", "Softmax", "Tanh", "Mul", "Sqrt"
    ):
        value = graph.values.get(node.output[0])
        if value is not None and value.dtype == np.float32 and not graph.is_output(node.output[0]):
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    readers = graph.consumers(node.output[0])
    value = graph.values[node.output[0]]
    # one row fits every batch; the rest of the shape is the example's
    row = np.ascontiguousarray(value[:1] if value.ndim else value)
    name, op_type = node.output[0], node.op_type
    graph.proto.node.remove(node)
    graph.drop_unused()
    graph.proto.initializer.append(numpy_helper.from_array(row, name))
    return at(readers, f"{op_type} frozen to the example's value")


@kind("dimension-baked", "baked-dimension", "cache")
def dimension_baked(graph: Graph, rng: Random) -> Mutation | None:
    """A size that was computed from the input's shape is the example's."""
    nodes = []
    for node in graph.proto.node:
        value = graph.values.get(node.output[0]) if node.op_type != "Constant" else None
        if value is None or value.dtype != np.int64 or value.size > 6:
            continue
        if _comes_from_shape(graph, node):
            nodes.append(node)
    nodes = [node for node in nodes if not graph.is_output(node.output[0])]
    if not nodes:
        return None
    node = rng.choice(nodes)
    readers = graph.consumers(node.output[0])
    name, value = node.output[0], graph.values[node.output[0]]
    graph.proto.node.remove(node)
    graph.drop_unused()
    graph.proto.initializer.append(numpy_helper.from_array(value, name))
    left = {other.name for other in graph.proto.node}
    guilty = _first_floats(graph, [reader for reader in readers if reader.name in left])
    return at(guilty, f"{node.op_type} frozen to {value.ravel().tolist()}")


def _comes_from_shape(graph: Graph, node: onnx.NodeProto, depth: int = 8) -> bool:
    if node.op_type in ("Shape", "Size"):
        return True
    makers = [graph.producer(name) for name in node.input if name]
    return depth > 0 and any(
        _comes_from_shape(graph, maker, depth - 1) for maker in makers if maker is not None
    )


def _first_floats(graph: Graph, nodes: list[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Those nodes, and what they feed up to the first that make something else than whole numbers."""
    reached, waiting = [], list(nodes)
    while waiting:
        node = waiting.pop(0)
        if any(node.name == other.name for other in reached):
            continue
        reached.append(node)
        if graph.dtype(node.output[0]) == np.int64:
            waiting += graph.consumers(node.output[0])
    return reached
