"""Ways in which weights of 4 bits go wrong: scales, zero points, nibbles, groups, rows."""

from random import Random

import numpy as np
import onnx

from bench.mutants.graph import Array, Graph
from bench.mutants.mutation import Change, Mutation, at, register

BLOCKS: dict[str, Change] = {}
CODES = ("weights", "quant-scheme", "attribute", "weight-layout")


def kind(name: str, *codes: str):  # type: ignore[no-untyped-def]  # the register's own type
    """Register a kind of fault of 4-bit files."""
    return register(BLOCKS, name, codes or CODES)


def _node(graph: Graph, rng: Random, place: int = 1) -> onnx.NodeProto | None:
    """A product of 4 bits that has a constant of integers at this place."""
    nodes = []
    for node in graph.nodes("MatMulNBits"):
        constant = graph.constant(node, place)
        if constant is not None and constant.dtype.kind in "iu":
            nodes.append(node)
    if not nodes:
        return None
    return rng.choice(nodes)


def _scales(graph: Graph, node: onnx.NodeProto) -> Array:
    """The scales as rows and blocks."""
    return graph.constants[node.input[2]].reshape(int(graph.attribute(node, "N")), -1)


def _write_scales(graph: Graph, node: onnx.NodeProto, scales: Array) -> None:
    shape = graph.constants[node.input[2]].shape
    graph.write(node, 2, scales.reshape(shape))


@kind("scale-blocks-permuted")
def scale_blocks_permuted(graph: Graph, rng: Random) -> Mutation | None:
    """The scales of a row's blocks in another order."""
    node = _node(graph, rng)
    if node is None or _scales(graph, node).shape[1] < 2:
        return None
    _write_scales(graph, node, np.roll(_scales(graph, node), 1, axis=1))
    return at(node, "scales of blocks rolled by one")


@kind("scale-rows-permuted")
def scale_rows_permuted(graph: Graph, rng: Random) -> Mutation | None:
    """The scales of another row."""
    node = _node(graph, rng)
    if node is None:
        return None
    _write_scales(graph, node, np.roll(_scales(graph, node), 1, axis=0))
    return at(node, "scales of rows rolled by one")


@kind("scales-by-column")
def scales_by_column(graph: Graph, rng: Random) -> Mutation | None:
    """Scales written blocks first where rows come first."""
    node = _node(graph, rng)
    if node is None or _scales(graph, node).shape[1] < 2:
        return None
    scales = _scales(graph, node)
    _write_scales(graph, node, np.ascontiguousarray(scales.T).reshape(scales.shape))
    return at(node, "scales in the transposed order")


@kind("row-times-3")
def row_times_3(graph: Graph, rng: Random) -> Mutation | None:
    """One row is three times what it was."""
    node = _node(graph, rng)
    if node is None:
        return None
    scales = _scales(graph, node).copy()
    row = rng.randrange(len(scales))
    scales[row] *= 3
    _write_scales(graph, node, scales)
    return at(node, f"row {row} times 3")


@kind("zero-point-off")
def zero_point_off(graph: Graph, rng: Random) -> Mutation | None:
    """Zero points that are one or two too high or too low."""
    node = _node(graph, rng, place=3)
    if node is None:
        return None
    zeros = graph.constants[node.input[3]]
    shift = rng.choice([-2, -1, 1, 2])
    low = np.clip((zeros & 15).astype(int) + shift, 0, 15)
    high = np.clip((zeros >> 4).astype(int) + shift, 0, 15)
    graph.write(node, 3, (low | high << 4).astype(np.uint8))
    return at(node, f"zero points off by {shift}")


@kind("zero-points-dropped")
def zero_points_dropped(graph: Graph, rng: Random) -> Mutation | None:
    """The middle of the range for every zero point."""
    node = _node(graph, rng, place=3)
    if node is None:
        return None
    node.input[3] = ""
    return at(node, "zero points dropped")


@kind("zero-point-nibbles")
def zero_point_nibbles(graph: Graph, rng: Random) -> Mutation | None:
    """The zero points of neighbouring blocks are exchanged."""
    node = _node(graph, rng, place=3)
    if node is None:
        return None
    zeros = graph.constants[node.input[3]]
    graph.write(node, 3, (zeros >> 4 | zeros << 4).astype(np.uint8))
    return at(node, "nibbles of the zero points swapped")


@kind("nibbles-swapped")
def nibbles_swapped(graph: Graph, rng: Random) -> Mutation | None:
    """The high nibble first."""
    node = _node(graph, rng)
    if node is None:
        return None
    packed = graph.constants[node.input[1]]
    graph.write(node, 1, (packed >> 4 | packed << 4).astype(np.uint8))
    return at(node, "nibbles of the weight swapped")


@kind("groups-dropped")
def groups_dropped(graph: Graph, rng: Random) -> Mutation | None:
    """A weight whose columns are grouped by g_idx loses it."""
    node = _node(graph, rng, place=4)
    if node is None:
        return None
    del node.input[3:]
    return at(node, "g_idx dropped")


@kind("groups-of-another")
def groups_of_another(graph: Graph, rng: Random) -> Mutation | None:
    """Groups of columns in another order."""
    node = _node(graph, rng, place=4)
    if node is None:
        return None
    graph.write(node, 4, graph.constants[node.input[4]][::-1])
    return at(node, "g_idx reversed")


@kind("weights-of-another")
def weights_of_another(graph: Graph, rng: Random) -> Mutation | None:
    """Two layers of one shape exchange their weights, or only their scales."""
    nodes = graph.nodes("MatMulNBits")
    rng.shuffle(nodes)
    places = rng.choice([(1,), (2,), (1, 2)])
    for one in nodes:
        for other in nodes:
            shapes = [graph.shape(node.input[1]) for node in (one, other)]
            if one.name == other.name or shapes[0] != shapes[1]:
                continue
            for place in places:
                left, right = graph.constants[one.input[place]], graph.constants[other.input[place]]
                graph.write(one, place, right)
                graph.write(other, place, left)
            return at([one, other], f"inputs {places} of two MatMulNBits exchanged")
    return None


@kind("rows-permuted")
def rows_permuted(graph: Graph, rng: Random) -> Mutation | None:
    """Rows of integers that stand one place later."""
    node = _node(graph, rng)
    if node is None:
        return None
    graph.write(node, 1, np.roll(graph.constants[node.input[1]], 1, axis=0))
    return at(node, "rows of the weight rolled by one")
