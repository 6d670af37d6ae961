"""Structure: nodes that no output needs, nodes that only move data, operators outside of the standard, the 2 GB limit."""

from collections.abc import Iterator

import onnx

from onnxproof.inspection.view import Check, Rating, View, format_bytes, list_names

_MOVERS = frozenset(
    {
        "Identity",
        "Cast",
        "Transpose",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Concat",
        "Slice",
        "Gather",
        "Shape",
        "Expand",
        "Constant",
        "ConstantOfShape",
    }
)
_MAX_MOVERS = 0.8
"""Share of nodes that may only move data, in graphs of more than `_MIN_NODES` nodes. Not measured."""
_MIN_NODES = 20
_MAX_IDENTITIES = 0.1
"""Share of nodes that may be Identity. Not measured."""
_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_PROTOBUF_LIMIT = int(1.9e9)
"""A protobuf ends at 2 GB; a little less leaves room for what a runtime adds (not measured)."""


def check(view: View) -> Iterator[Check]:
    """Dead nodes, data movement, operators outside of the standard, size."""
    yield _check_dead_nodes(view)
    yield _check_movers(view)
    yield _check_operators(view)
    yield _check_size(view)


def _check_size(view: View) -> Check:
    weight_bytes = sum(weight.bytes for weight in view.weights)
    what = f"{format_bytes(view.file_bytes)} on disk, {format_bytes(weight_bytes)} of weights"
    if view.file.path.stat().st_size <= _PROTOBUF_LIMIT:
        return Check(name="size", rating=Rating.GOOD, what=what)
    return Check(
        name="size",
        rating=Rating.BAD,
        what=what,
        help="a protobuf ends at 2 GB: keep the weights in a file of their own (`--external-data`)",
    )


def _check_dead_nodes(view: View) -> Check:
    needed = {port.name for port in view.file.outputs}
    dead = []
    for node in reversed(view.file.model.graph.node):
        if needed & set(node.output):
            needed.update(node.input)
            needed.update(_subgraph_inputs(node))
        else:
            dead.append(node.name or node.op_type)
    if not dead:
        return Check(name="dead-nodes", rating=Rating.GOOD, what="every node leads to an output")
    return Check(
        name="dead-nodes",
        rating=Rating.ODD,
        what=f"{len(dead)} nodes lead nowhere: {list_names(dead)}",
        help="an optimizer (`onnxproof export --optimize onnxscript`) removes them",
    )


def _subgraph_inputs(node: onnx.NodeProto) -> Iterator[str]:
    """What the nodes in the subgraphs of a node consume."""
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from inner.input


def _check_movers(view: View) -> Check:
    count = len(view.nodes)
    movers = sum(view.operators[name] for name in _MOVERS)
    identities = view.operators["Identity"]
    share = movers / max(count, 1)
    too_many_movers = share > _MAX_MOVERS and count > _MIN_NODES
    too_many_identities = identities > _MAX_IDENTITIES * max(count, 10)
    rating = Rating.GOOD
    if too_many_movers or too_many_identities:
        rating = Rating.ODD
    what = (
        f"{count} nodes, {share:.0%} of them only move data about ({identities} do nothing at all)"
    )
    return Check(name="busywork", rating=rating, what=what)


def _check_operators(view: View) -> Check:
    local = {(function.domain, function.name) for function in view.file.model.functions}
    foreign = sorted(
        {
            f"{node.domain}:{node.op_type}"
            for node in view.nodes
            if node.domain not in _STANDARD_DOMAINS and (node.domain, node.op_type) not in local
        }
    )
    if not foreign:
        return Check(
            name="operators",
            rating=Rating.GOOD,
            what=f"opset {view.file.opset}, every operator is of the standard",
        )
    return Check(
        name="operators",
        rating=Rating.ODD,
        what=f"opset {view.file.opset}; not of the standard: {list_names(foreign, 5)}",
        help="only the runtime that defines them can open this file",
    )
