"""Try another operator, or another order of operands, in the place of a located node."""

from collections.abc import Sequence

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Fix


def other_operator(
    bench: Workbench, families: Sequence[Sequence[str]], *, attributes: bool = False
) -> Tried | str:
    """The located nodes with each other operator of their family (and their own attributes); then the few others of it, since a step that does nothing looks right."""
    known = {name for family in families for name in family}
    others = [
        node
        for node in bench.model.graph.node
        if node.op_type in known and node.output[0] not in {n.output[0] for n in bench.nodes[:4]}
    ]
    for node in [*bench.nodes[:4], *others[:4]]:
        for family in families:
            for other in family if node.op_type in family else ():
                if other == node.op_type:
                    continue

                def change(n: onnx.NodeProto, other: str = other) -> None:
                    n.op_type = other
                    if not attributes:
                        del n.attribute[:]

                model = bench.with_node(node, change)
                after = bench.distance(model)
                if bench.cured(after):
                    return Tried(
                        proven=True,
                        after=after,
                        model=model,
                        evidence=f"{node.name or node.output[0]} is {node.op_type}; with {other} the answers are right",
                        fix=Fix(kind="graph", what=f"make {node.name or node.output[0]} a {other}"),
                    )
    return "no other operator of the family mends a named node"


def other_order(
    bench: Workbench, op_types: Sequence[str]
) -> tuple[onnx.NodeProto, onnx.ModelProto, float] | None:
    """The located nodes with their operands exchanged."""
    for node in bench.nodes[:4]:
        if node.op_type not in op_types or len(node.input) < 2:
            continue
        pairs = (
            [(1, 2)]
            if node.op_type == "Where"
            else [
                (i, j)
                for i in range(min(len(node.input), 4))
                for j in range(i + 1, min(len(node.input), 4))
            ]
        )
        for i, j in pairs:

            def change(n: onnx.NodeProto, i: int = i, j: int = j) -> None:
                n.input[i], n.input[j] = n.input[j], n.input[i]

            model = bench.with_node(node, change)
            after = bench.distance(model)
            if bench.cured(after):
                return node, model, after
    return None
