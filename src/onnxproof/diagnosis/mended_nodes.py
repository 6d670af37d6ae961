"""The nodes of a file that a mended copy of it changes: what a proven cause mends is guilty, wherever the search stopped."""

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import onnx

from onnxproof.onnxmodel.graph import Graph, make_suspect
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.results import Location

MOST_MENDED = 3
"""Nodes of one mend that are moved to the front: a mend of more is a rewrite, and says less of each. Not measured."""


def changed_nodes(model: onnx.ModelProto, mended: onnx.ModelProto) -> frozenset[str]:
    """The names of the nodes that the mended model changes, leaves out, or gives another weight.

    None where it has nodes of its own: an operation is missing then, and the nearest that is left was located.
    """
    if _outputs(mended) - _outputs(model):
        return frozenset()
    copies = {node.output[0]: node for node in mended.graph.node if node.output}
    weights = _changed_weights(model, mended)
    changed = [
        node for node in model.graph.node if node.output and _is_changed(node, copies, weights)
    ]
    if len(changed) == 1:
        changed = [_skipped_node(model, mended, changed[0], copies) or changed[0]]
    return frozenset(node.name or node.output[0] for node in changed)


def _skipped_node(
    model: onnx.ModelProto,
    mended: onnx.ModelProto,
    reader: onnx.NodeProto,
    copies: Mapping[str, onnx.NodeProto],
) -> onnx.NodeProto | None:
    """The node before the reader that the mended model goes round: one operation too many, and the reader is innocent.

    It goes round it where the reader reads what that node read, and nothing reads that node any more.
    """
    copy = copies.get(reader.output[0])
    if copy is None or copy.op_type != reader.op_type:
        return None
    read = {name for node in mended.graph.node for name in node.input}
    read.update(port.name for port in mended.graph.output)
    left = set(reader.input) - read
    gained = set(copy.input) - set(reader.input)
    between = (
        node
        for node in model.graph.node
        if left.intersection(node.output) and gained.intersection(node.input)
    )
    return next(between, None)


def _outputs(model: onnx.ModelProto) -> set[str]:
    """The values that nodes compute; a Constant computes nothing."""
    return {name for node in model.graph.node if node.op_type != "Constant" for name in node.output}


def _is_changed(
    node: onnx.NodeProto, copies: Mapping[str, onnx.NodeProto], weights: frozenset[str]
) -> bool:
    """Whether a node is another one in the mended model, or reads a changed weight; a constant is its reader's."""
    if node.op_type == "Constant":
        return False
    copy = copies.get(node.output[0])
    return copy is None or copy != node or not weights.isdisjoint(node.input)


def _changed_weights(model: onnx.ModelProto, mended: onnx.ModelProto) -> frozenset[str]:
    """The initializers and constants that hold something else in the mended model."""
    before = dict(_stored(model.graph))
    after = dict(_stored(mended.graph))
    return frozenset(name for name, value in before.items() if after.get(name) != value)


def _stored(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto | onnx.NodeProto]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        if node.op_type == "Constant":
            yield node.output[0], node


def name_first(location: Location, file: OnnxFile, mended: AbstractSet[str], code: str) -> Location:
    """The location with the mended nodes before the others; as it was where they are none or too many, or where one of them, or a node inside of it, is first."""
    graph = Graph.of(file)
    if not 0 < len(mended) <= MOST_MENDED or _leads(location, graph, mended):
        return location
    why = f"the answers are right with it mended ({code})"
    first = [
        make_suspect(graph, place, 0.0, why)
        for place in range(len(graph.nodes))
        if graph.name(place) in mended
    ]
    if not first:
        return location
    others = [suspect for suspect in location.suspects if suspect.node not in mended]
    named = [suspect.node for suspect in first]
    return replace(
        location,
        nodes=(*named, *(node for node in location.nodes if node not in mended)),
        suspects=(*first, *others),
        module=first[0].module,
        source=first[0].source,
        evidence=f"{location.evidence}; mended at {named[0]} the answers are right",
    )


def _leads(location: Location, graph: Graph, mended: AbstractSet[str]) -> bool:
    """Whether a mended node, or a node inside of one, is first already."""
    first = next(iter(location.nodes), "")
    holders = tuple(f"{name}/" for name in mended & _nodes_with_graphs(graph))
    return first in mended or first.startswith(holders)


def _nodes_with_graphs(graph: Graph) -> set[str]:
    """The nodes that hold a graph of their own, whose nodes are named behind them."""
    return {
        graph.name(place)
        for place, node in enumerate(graph.nodes)
        if any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)
    }
