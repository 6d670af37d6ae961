"""Weights that are not the module's."""

from collections.abc import Callable
from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Array, Graph
from bench.mutants.mutation import Mutation, at, kind

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Gather", "LSTM", "GRU", "Attention")
BIASED = ("Conv", "Gemm", "Add", "LayerNormalization", "BatchNormalization", "GroupNormalization")


def _change(
    graph: Graph,
    rng: Random,
    op_types: tuple[str, ...],
    what: str,
    change: Callable[[onnx.NodeProto, int, Array], Array | None],
) -> Mutation | None:
    """Change one weight of nodes of these types; None from `change` means that the weight does not fit."""
    places = list(graph.weights(*op_types))
    rng.shuffle(places)
    for node, place, value in places:
        other = change(node, place, value)
        if other is not None and not np.array_equal(other, value):
            graph.write(node, place, other.astype(value.dtype))
            return at(node, f"{what} in {node.op_type} input {place} {list(value.shape)}")
    return None


@kind("weights-swapped", "weights")
def swapped(graph: Graph, rng: Random) -> Mutation | None:
    """Two weights of one shape read from each other's place."""
    places = list(graph.weights())
    rng.shuffle(places)
    for first, place, value in places:
        for second, other_place, other in places:
            alike = other.shape == value.shape and first.op_type == second.op_type
            if alike and place == other_place and not np.array_equal(value, other):
                graph.write(first, place, other)
                graph.write(second, other_place, value)
                return at(
                    [first, second], f"weights {list(value.shape)} of {first.op_type} swapped"
                )
    return None


@kind("weight-transposed", "weight-layout", "weights")
def transposed(graph: Graph, rng: Random) -> Mutation | None:
    """A square matrix, or a square kernel, transposed."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array | None:
        if value.ndim < 2 or value.shape[-1] != value.shape[-2] or value.shape[-1] < 2:
            return None
        return value.swapaxes(-1, -2)

    return _change(graph, rng, ("Conv", "Gemm", "MatMul"), "transposed", change)


@kind("channel-sign", "weights")
def channel_sign(graph: Graph, rng: Random) -> Mutation | None:
    """One channel with the other sign."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array:
        other = value.copy()
        other[rng.randrange(len(value))] *= -1
        return other

    return _change(graph, rng, ("Conv", "Gemm", "MatMul", "Mul"), "one sign flipped", change)


@kind("bias-zero", "weights")
def bias_zero(graph: Graph, rng: Random) -> Mutation | None:
    """A bias of zeros."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array | None:
        if value.ndim != 1 or (node.op_type == "BatchNormalization" and place != 2):
            return None
        if node.op_type in ("LayerNormalization", "GroupNormalization") and place != 2:
            return None
        return np.zeros_like(value)

    return _change(graph, rng, BIASED, "bias zero", change)


@kind("bias-dropped", "weights", "missing-op")
def bias_dropped(graph: Graph, rng: Random) -> Mutation | None:
    """The optional bias of a Conv or Gemm is no longer there."""
    nodes = [
        node for node in graph.nodes("Conv", "Gemm", "LayerNormalization") if len(node.input) > 2
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    del node.input[2:]
    return at(node, f"bias of {node.op_type} dropped")


@kind("weights-half", "precision", "weights")
def half_rounded(graph: Graph, rng: Random) -> Mutation | None:
    """Weights rounded to half precision and stored as float32."""
    return _change(
        graph,
        rng,
        LAYERS,
        "rounded to float16",
        lambda node, place, value: value.astype(np.float16),
    )


@kind("weights-bfloat16", "precision", "weights")
def bfloat_rounded(graph: Graph, rng: Random) -> Mutation | None:
    """Weights rounded to bfloat16 and stored as float32."""
    import ml_dtypes

    return _change(
        graph,
        rng,
        LAYERS,
        "rounded to bfloat16",
        lambda node, place, value: value.astype(ml_dtypes.bfloat16).astype(np.float32),
    )


@kind("rows-permuted", "weight-layout", "weights")
def rows_permuted(graph: Graph, rng: Random) -> Mutation | None:
    """The rows of a weight in the other order, or its halves exchanged."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array | None:
        if len(value) < 2:
            return None
        if rng.random() < 0.5:
            return value[::-1]
        return np.roll(value, len(value) // 2, axis=0)

    return _change(graph, rng, ("Conv", "Gemm", "MatMul", "Gather"), "rows permuted", change)


@kind("filter-scaled", "weights")
def filter_scaled(graph: Graph, rng: Random) -> Mutation | None:
    """One filter, two percent larger."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array:
        other = value.copy()
        other[rng.randrange(len(value))] *= 1.02
        return other

    return _change(graph, rng, ("Conv", "Gemm", "MatMul"), "one filter scaled by 1.02", change)


@kind("gates-permuted", "weight-layout", "weights")
def gates_permuted(graph: Graph, rng: Random) -> Mutation | None:
    """Two gates of a recurrent weight exchanged, in W, R and B alike: another framework's order."""
    nodes = [node for node in graph.nodes("LSTM", "GRU") if graph.constant(node, 1) is not None]
    if not nodes:
        return None
    node = rng.choice(nodes)
    gates = 4 if node.op_type == "LSTM" else 3
    first, second = rng.sample(range(gates), 2)
    order = list(range(gates))
    order[first], order[second] = second, first
    for place in (1, 2, 3):
        value = graph.constant(node, place)
        if value is None:
            continue
        blocks = gates * (2 if place == 3 else 1)
        places = order + [gates + gate for gate in order] * int(place == 3)
        parts = np.split(value, blocks, axis=1)
        graph.write(node, place, np.concatenate([parts[k] for k in places], axis=1))
    return at(node, f"gates {first} and {second} of {node.op_type} exchanged")


@kind("directions-swapped", "weight-layout", "weights")
def directions_swapped(graph: Graph, rng: Random) -> Mutation | None:
    """The forward weights of a bidirectional recurrence run backwards."""

    def change(node: onnx.NodeProto, place: int, value: Array) -> Array | None:
        if value.ndim < 2 or value.shape[0] != 2:
            return None
        return value[::-1]

    return _change(graph, rng, ("LSTM", "GRU", "RNN"), "directions exchanged", change)


@kind("statistics-swapped", "weights")
def statistics_swapped(graph: Graph, rng: Random) -> Mutation | None:
    """A BatchNorm whose mean and variance, or scale and bias, stand in each other's place."""
    nodes = [
        node for node in graph.nodes("BatchNormalization") if graph.constant(node, 4) is not None
    ]
    if not nodes:
        return None
    node = rng.choice(nodes)
    first, second = rng.choice([(1, 2), (2, 3), (1, 4)])
    node.input[first], node.input[second] = node.input[second], node.input[first]
    return at(node, f"inputs {first} and {second} of BatchNormalization exchanged")
