"""Structure: nodes that nobody needs, nodes that only move data about, operators outside of the standard, the 2 GB limit."""

from collections.abc import Iterator

from onnxproof.inspection.view import Check, Rating, View, few, megabytes

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
_MANY = 0.8
_KNOWN = ("", "ai.onnx", "ai.onnx.ml")
_LIMIT = int(1.9e9)


def check(view: View) -> Iterator[Check]:
    """Dead ends, busywork, strangers, size."""
    yield _dead(view)
    yield _movers(view)
    yield _strangers(view)
    inside = view.file.path.stat().st_size
    near = inside > _LIMIT
    yield Check(
        name="size",
        rating=Rating.BAD if near else Rating.GOOD,
        what=f"{megabytes(view.file_bytes)} on disk, {megabytes(sum(w.bytes for w in view.weights))} of weights",
        help="a protobuf ends at 2 GB: keep the weights in a file of their own (`--external-data`)"
        if near
        else "",
    )


def _dead(view: View) -> Check:
    needed = {port.name for port in view.file.outputs}
    dead = []
    for node in reversed(view.file.model.graph.node):
        if needed & set(node.output):
            needed.update(node.input)
            needed.update(
                name
                for attribute in node.attribute
                for graph in (attribute.g, *attribute.graphs)
                for inner in graph.node
                for name in inner.input
            )
        else:
            dead.append(node.name or node.op_type)
    return Check(
        name="dead-nodes",
        rating=Rating.ODD if dead else Rating.GOOD,
        what=f"{len(dead)} nodes lead nowhere: {few(dead)}"
        if dead
        else "every node leads to an output",
        help="an optimizer (`onnxproof export --optimize onnxscript`) removes them" if dead else "",
    )


def _movers(view: View) -> Check:
    count, idle = sum(view.operators[name] for name in _MOVERS), view.operators["Identity"]
    share = count / max(len(view.nodes), 1)
    busy = share > _MANY and len(view.nodes) > 20
    what = f"{len(view.nodes)} nodes, {share:.0%} of them only move data about ({idle} do nothing at all)"
    return Check(
        name="busywork",
        rating=Rating.ODD if busy or idle > 0.1 * max(len(view.nodes), 10) else Rating.GOOD,
        what=what,
    )


def _strangers(view: View) -> Check:
    local = {(function.domain, function.name) for function in view.file.model.functions}
    strange = sorted(
        {
            f"{node.domain}:{node.op_type}"
            for node in view.nodes
            if node.domain not in _KNOWN and (node.domain, node.op_type) not in local
        }
    )
    if not strange:
        return Check(
            name="operators",
            rating=Rating.GOOD,
            what=f"opset {view.file.opset}, every operator is of the standard",
        )
    return Check(
        name="operators",
        rating=Rating.ODD,
        what=f"opset {view.file.opset}; not of the standard: {few(strange, 5)}",
        help="only the runtime that defines them can open this file",
    )
