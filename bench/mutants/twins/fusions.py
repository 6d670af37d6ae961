"""Fusions, foldings and decompositions that keep the answers."""

import tempfile
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime

from bench.mutants.graph import Graph
from bench.mutants.kinds.rewrites import conv_and_norm, fold_norm
from bench.mutants.mutation import Mutation, at, twin


def _optimized(
    graph: Graph, level: onnxruntime.GraphOptimizationLevel, what: str
) -> Mutation | None:
    """The file that ONNX Runtime saves after its own optimizations."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = level
        options.optimized_model_filepath = str(path)
        data = graph.model.SerializeToString()
        onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        graph.model.CopyFrom(onnx.load(path))
    return Mutation(guilty=(), what=what)


@twin("runtime-basic")
def runtime_basic(graph: Graph, rng: Random) -> Mutation | None:
    """Constants folded and idle nodes removed by ONNX Runtime."""
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return _optimized(graph, level, "saved by ONNX Runtime at its basic level")


@twin("runtime-extended")
def runtime_extended(graph: Graph, rng: Random) -> Mutation | None:
    """LayerNorm, Gelu and others fused by ONNX Runtime."""
    level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    return _optimized(graph, level, "saved by ONNX Runtime at its extended level")


@twin("norm-folded")
def norm_folded(graph: Graph, rng: Random) -> Mutation | None:
    """Every BatchNorm folded into the convolution before it, rightly."""
    pairs = conv_and_norm(graph)
    for conv, norm in pairs:
        epsilon = float(graph.attribute(norm, "epsilon", 1e-5))
        fold_norm(graph, conv, norm, epsilon=epsilon, with_mean=True)
    return at([conv for conv, _ in pairs], "BatchNormalization folded") if pairs else None


@twin("gelu-by-erf")
def gelu_by_erf(graph: Graph, rng: Random) -> Mutation | None:
    """Gelu written out: 0.5 x (1 + erf(x / sqrt 2))."""
    nodes = [
        node
        for node in graph.nodes("Gelu")
        if graph.attribute(node, "approximate", "none") == "none"
    ]
    for node in nodes:
        value = node.input[0]
        numbers = [graph.add_constant(np.array(n, np.float32)) for n in (2**-0.5, 1.0, 0.5)]
        scaled = graph.insert_before(node, "Mul", [value, numbers[0]])
        erf = graph.insert_before(node, "Erf", [scaled.output[0]])
        gate = graph.insert_before(node, "Add", [erf.output[0], numbers[1]])
        half = graph.insert_before(node, "Mul", [value, numbers[2]])
        node.op_type = "Mul"
        del node.attribute[:]
        node.input[0] = half.output[0]
        node.input.append(gate.output[0])
    return at(nodes, f"{len(nodes)} Gelu by Erf") if nodes else None


@twin("relu-as-max")
def relu_as_max(graph: Graph, rng: Random) -> Mutation | None:
    """Relu as the maximum of the value and zero."""
    nodes = [node for node in graph.nodes("Relu") if graph.is_float(node.output[0])]
    for node in nodes:
        node.op_type = "Max"
        node.input.append(graph.add_constant(np.array(0.0, np.float32)))
    return at(nodes, f"{len(nodes)} Relu as Max") if nodes else None


@twin("hardswish-written-out")
def hardswish_written_out(graph: Graph, rng: Random) -> Mutation | None:
    """HardSwish as the product of its value and HardSigmoid."""
    nodes = graph.nodes("HardSwish")
    for node in nodes:
        gate = graph.insert_before(node, "HardSigmoid", [node.input[0]], alpha=1 / 6, beta=0.5)
        node.op_type = "Mul"
        node.input.append(gate.output[0])
    return at(nodes, f"{len(nodes)} HardSwish written out") if nodes else None


@twin("concat-of-slices")
def concat_of_slices(graph: Graph, rng: Random) -> Mutation | None:
    """A value cut in two along its last axis and joined again."""
    names = []
    for node in graph.proto.node:
        shape = graph.shape(node.output[0])
        if graph.is_float(node.output[0]) and shape and shape[-1] > 1:
            names.append(node.output[0])
    if not names:
        return None
    value = rng.choice(names)
    joined = graph.insert_after(value, "Concat", axis=-1)
    cut = rng.randrange(1, (graph.shape(value) or (2,))[-1])
    ends = [graph.add_constant(np.array([n], np.int64)) for n in (0, cut, 2**62, -1)]
    source = joined.input[0]
    left = graph.insert_before(joined, "Slice", [source, ends[0], ends[1], ends[3]])
    right = graph.insert_before(joined, "Slice", [source, ends[1], ends[2], ends[3]])
    joined.input[0] = left.output[0]
    joined.input.append(right.output[0])
    return at(joined, "cut in two and joined")
