"""Rewrites of an optimizer that went wrong."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Array, Graph
from bench.mutants.mutation import Mutation, at, kind


def conv_and_norm(graph: Graph) -> list[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Convolutions with constant weights that only a BatchNormalization with constant statistics reads."""
    pairs = []
    for norm in graph.nodes("BatchNormalization"):
        conv = graph.producer(norm.input[0])
        fixed = all(graph.constant(norm, place) is not None for place in range(1, 5))
        if conv is None or conv.op_type != "Conv" or not fixed:
            continue
        if graph.constant(conv, 1) is not None and len(graph.consumers(conv.output[0])) == 1:
            pairs.append((conv, norm))
    return pairs


def fold_norm(
    graph: Graph, conv: onnx.NodeProto, norm: onnx.NodeProto, *, epsilon: float, with_mean: bool
) -> None:
    """Put a BatchNormalization into the convolution before it."""
    scale, bias, mean, variance = (graph.constants[norm.input[place]] for place in range(1, 5))
    weight = graph.constants[conv.input[1]]
    old: Array = np.zeros_like(bias)
    if len(conv.input) > 2:
        old = graph.constants[conv.input[2]]
    gain = scale / np.sqrt(variance + epsilon)
    graph.write(conv, 1, (weight * gain.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype))
    if not with_mean:
        mean = np.zeros_like(mean)
    name = graph.add_constant(((old - mean) * gain + bias).astype(weight.dtype), "bias")
    del conv.input[2:]
    conv.input.append(name)
    conv.output[0] = norm.output[0]
    graph.proto.node.remove(norm)


@kind("fold-epsilon", "weights", "attribute")
def fold_epsilon(graph: Graph, rng: Random) -> Mutation | None:
    """BatchNorm folded into its convolution with another epsilon."""
    pairs = conv_and_norm(graph)
    if not pairs:
        return None
    conv, norm = rng.choice(pairs)
    fold_norm(graph, conv, norm, epsilon=rng.choice([0.0, 1e-2, 0.1]), with_mean=True)
    return at(conv, "BatchNormalization folded with another epsilon")


@kind("fold-without-mean", "weights")
def fold_without_mean(graph: Graph, rng: Random) -> Mutation | None:
    """BatchNorm folded into its convolution as if its mean were zero."""
    pairs = conv_and_norm(graph)
    if not pairs:
        return None
    conv, norm = rng.choice(pairs)
    epsilon = float(graph.attribute(norm, "epsilon", 1e-5))
    fold_norm(graph, conv, norm, epsilon=epsilon, with_mean=False)
    return at(conv, "BatchNormalization folded without its mean")


@kind("layernorm-to-rms", "attribute", "missing-op")
def layernorm_to_rms(graph: Graph, rng: Random) -> Mutation | None:
    """A LayerNorm that no longer subtracts the mean, written out."""
    nodes = [node for node in graph.nodes("LayerNormalization") if len(node.input) == 3]
    nodes = [
        node for node in nodes if graph.attribute(node, "axis", -1) == -1 and len(node.output) == 1
    ]
    opset = max(item.version for item in graph.model.opset_import if item.domain == "")
    if not nodes or opset < 18:
        return None
    node = rng.choice(nodes)
    value, gain, bias = node.input
    epsilon = np.array(graph.attribute(node, "epsilon", 1e-5), np.float32)
    square = graph.insert_before(node, "Mul", [value, value])
    axes = graph.add_constant(np.array([-1], np.int64), "axes")
    mean = graph.insert_before(node, "ReduceMean", [square.output[0], axes])
    safe = graph.insert_before(
        node, "Add", [mean.output[0], graph.add_constant(epsilon, "epsilon")]
    )
    root = graph.insert_before(node, "Sqrt", [safe.output[0]])
    unit = graph.insert_before(node, "Div", [value, root.output[0]])
    scaled = graph.insert_before(node, "Mul", [unit.output[0], gain])
    node.op_type = "Add"
    del node.attribute[:]
    del node.input[:]
    node.input.extend([scaled.output[0], bias])
    made = [node, scaled, unit, root, safe, mean, square]
    return at(made, "LayerNormalization without its mean")


@kind("gelu-to-quick", "attribute")
def gelu_to_quick(graph: Graph, rng: Random) -> Mutation | None:
    """x * sigmoid(1.702 x) for GELU."""
    nodes = graph.nodes("Gelu")
    if not nodes:
        return None
    node = rng.choice(nodes)
    value = node.input[0]
    factor = graph.add_constant(np.array(1.702, np.float32), "factor")
    scaled = graph.insert_before(node, "Mul", [value, factor])
    gate = graph.insert_before(node, "Sigmoid", [scaled.output[0]])
    node.op_type = "Mul"
    del node.attribute[:]
    node.input.append(gate.output[0])
    return at([node, gate, scaled], "QuickGelu for Gelu")


@kind("relu6-to-relu", "clipping")
def relu6_to_relu(graph: Graph, rng: Random) -> Mutation | None:
    """A Clip from 0 to 6 that became a Relu."""
    nodes = []
    for node in graph.nodes("Clip"):
        low, high = graph.constant(node, 1), graph.constant(node, 2)
        if low is not None and high is not None and low == 0 and node.input[0]:
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    node.op_type = "Relu"
    del node.input[1:]
    return at(node, "Relu for Clip")


@kind("wrong-reciprocal", "attribute")
def wrong_reciprocal(graph: Graph, rng: Random) -> Mutation | None:
    """A division by a constant that became a product with the constant, or with its rounded inverse."""
    nodes = []
    for node in graph.nodes("Div"):
        value = graph.constant(node, 1)
        if value is not None and value.dtype == np.float32 and value.all():
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    value = graph.constants[node.input[1]]
    node.op_type = "Mul"
    rounded = np.round(1 / value, 3).astype(np.float32)
    graph.write(node, 1, rng.choice([rounded, value]))
    return at(node, "Div by a constant as Mul with a wrong inverse")


@kind("mean-to-sum", "attribute")
def mean_to_sum(graph: Graph, rng: Random) -> Mutation | None:
    """A mean as a sum times the inverse of another count."""
    nodes = [node for node in graph.nodes("ReduceMean") if graph.is_float(node.output[0])]
    opset = max(item.version for item in graph.model.opset_import if item.domain == "")
    if not nodes or opset < 18:
        return None
    node = rng.choice(nodes)
    before = np.prod(graph.shape(node.input[0]) or (1,))
    count = before / max(1, np.prod(graph.shape(node.output[0]) or (1,)))
    node.op_type = "ReduceSum"
    factor = graph.add_constant(np.array(1 / (count + rng.choice([-1, 1])), np.float32), "inverse")
    made = graph.insert_after(node.output[0], "Mul", extra=(factor,))
    return at([made, node], "a mean as a sum over another count")
