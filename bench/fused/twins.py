"""Other words for the same fused or 4-bit file."""

from random import Random

import numpy as np
from onnx import helper

from bench.mutants.graph import Graph
from bench.mutants.mutation import Change, Mutation, at, register

TWINS: dict[str, Change] = {}


def twin(name: str):  # type: ignore[no-untyped-def]  # the register's own type
    """Register a rewrite that keeps the answers."""
    return register(TWINS, name, ())


@twin("as-it-is")
def as_it_is(graph: Graph, rng: Random) -> Mutation | None:
    """The healthy file itself."""
    return at([], "the file itself")


@twin("scale-told")
def scale_told(graph: Graph, rng: Random) -> Mutation | None:
    """The scale that Attention takes anyway is written down."""
    nodes = graph.nodes("Attention")
    for node in nodes:
        graph.set_attribute(node, "scale", 8**-0.5)
    return at(nodes, "scale written down") if nodes else None


@twin("skip-norm-split")
def skip_norm_split(graph: Graph, rng: Random) -> Mutation | None:
    """SkipSimplifiedLayerNormalization as an Add and a norm."""
    nodes = graph.nodes("SkipSimplifiedLayerNormalization")
    for node in nodes:
        total = node.output[3]
        place = list(graph.proto.node).index(node)
        graph.proto.node.insert(
            place, helper.make_node("Add", node.input[:2], [total], name=f"{node.name}_Add")
        )
        weight = node.input[2]
        del node.input[:]
        node.input.extend([total, weight])
        del node.output[1:]
        node.op_type = "SimplifiedLayerNormalization"
        node.domain = ""
        node.attribute.append(helper.make_attribute("axis", -1))
    return at(nodes, "sum and norm apart") if nodes else None


@twin("tables-longer")
def tables_longer(graph: Graph, rng: Random) -> Mutation | None:
    """Tables of sines with room for more places."""
    if "cos_cache" not in graph.constants:
        return None
    for name in ("cos_cache", "sin_cache"):
        table = graph.constants[name]
        graph.overwrite(name, np.concatenate([table, np.ones_like(table)]))
    return at(graph.consumers("cos_cache"), "tables twice as long")


@twin("zero-points-told")
def zero_points_told(graph: Graph, rng: Random) -> Mutation | None:
    """The middle of the range is written down as the zero point."""
    nodes = [n for n in graph.nodes("MatMulNBits") if len(n.input) == 3]
    for node in nodes:
        rows, columns = (int(graph.attribute(node, name)) for name in "NK")
        blocks = -(-columns // int(graph.attribute(node, "block_size")))
        zeros = np.full((rows, -(-blocks // 2)), 0x88, np.uint8)
        node.input.append(graph.add_constant(zeros))
    return at(nodes, "zero points written down") if nodes else None


@twin("groups-told")
def groups_told(graph: Graph, rng: Random) -> Mutation | None:
    """Blocks of neighbours written down as g_idx."""
    nodes = [n for n in graph.nodes("MatMulNBits") if len(n.input) == 3]
    for node in nodes:
        columns = int(graph.attribute(node, "K"))
        block = int(graph.attribute(node, "block_size"))
        groups = (np.arange(columns) // block).astype(np.int32)
        node.input.extend(["", graph.add_constant(groups)])
    return at(nodes, "g_idx written down") if nodes else None


@twin("accuracy-level")
def accuracy_level(graph: Graph, rng: Random) -> Mutation | None:
    """The kernel may round its left side to 8 bits."""
    nodes = graph.nodes("MatMulNBits")
    level = rng.choice([1, 4])
    for node in nodes:
        graph.set_attribute(node, "accuracy_level", level)
    return at(nodes, f"accuracy_level {level}") if nodes else None
