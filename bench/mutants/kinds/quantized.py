"""Wrong parameters in a quantized graph."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Graph
from bench.mutants.mutation import Mutation, at, kind

CODES = ("calibration", "quant-scheme", "quant-saturation", "weights", "attribute")


def _parameters(graph: Graph, place: int) -> list[onnx.NodeProto]:
    """Nodes that quantize or dequantize with constant parameters."""
    nodes = graph.nodes("QuantizeLinear", "DequantizeLinear")
    return [node for node in nodes if graph.constant(node, place) is not None]


def _partners(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The other half of a pair: who dequantizes what it quantizes, or the other way round."""
    around = graph.consumers(node.output[0])
    producer = graph.producer(node.input[0])
    if producer is not None:
        around.append(producer)
    return [node, *around]


@kind("zero-point", *CODES)
def zero_point(graph: Graph, rng: Random) -> Mutation | None:
    """A zero point that is off, on one side of the pair."""
    nodes = _parameters(graph, 2)
    if not nodes:
        return None
    node = rng.choice(nodes)
    value = graph.constants[node.input[2]]
    shift = rng.choice([-20, 20])
    bounds = np.iinfo(value.dtype)
    moved = np.clip(value.astype(np.int64) + shift, bounds.min, bounds.max)
    graph.write(node, 2, moved.astype(value.dtype))
    return at(_partners(graph, node), f"zero point of {node.op_type} off by {shift}")


@kind("scale-doubled", *CODES)
def scale_doubled(graph: Graph, rng: Random) -> Mutation | None:
    """A scale twice as large, on one side of the pair."""
    nodes = _parameters(graph, 1)
    if not nodes:
        return None
    node = rng.choice(nodes)
    value = graph.constants[node.input[1]]
    graph.write(node, 1, (value * 2).astype(value.dtype))
    return at(_partners(graph, node), f"scale of {node.op_type} doubled")


@kind("scales-swapped", *CODES)
def scales_swapped(graph: Graph, rng: Random) -> Mutation | None:
    """The scales of two dequantizations in each other's place."""
    nodes = [
        node for node in graph.nodes("DequantizeLinear") if graph.constant(node, 1) is not None
    ]
    rng.shuffle(nodes)
    for first in nodes:
        for second in nodes:
            left, right = graph.constants[first.input[1]], graph.constants[second.input[1]]
            if left.shape == right.shape and not np.array_equal(left, right):
                graph.write(first, 1, right)
                graph.write(second, 1, left)
                guilty = _partners(graph, first) + _partners(graph, second)
                return at(guilty, "scales of two DequantizeLinear swapped")
    return None


@kind("quantized-axis", "attribute", "weights", "quant-scheme", "weight-layout", "axis-order")
def quantized_axis(graph: Graph, rng: Random) -> Mutation | None:
    """Scales by channel along the other axis of a square weight."""
    nodes = []
    for node in graph.nodes("DequantizeLinear"):
        scale, shape = graph.constant(node, 1), graph.shape(node.input[0])
        if scale is None or scale.size < 2 or shape is None or len(shape) < 2:
            continue
        if shape[0] == shape[1]:
            nodes.append(node)
    if not nodes:
        return None
    node = rng.choice(nodes)
    graph.set_attribute(node, "axis", 1 - int(graph.attribute(node, "axis", 1)) % 2)
    return at(_partners(graph, node), "scales along the other axis")
