"""Try another operator, or another order of operands, in the place of a located node."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, node_name

_MOST_OPERANDS = 4
"""Operands of one node that are exchanged pair by pair. Not measured."""


def try_other_operators(
    workbench: Workbench,
    families: Sequence[Sequence[str]],
    *,
    keep_attributes: bool = False,
    only_located: bool = False,
    never: Sequence[str] = (),
) -> Tried | str:
    """Each other operator of its family, but for some, in the place of the located nodes; then of a few other nodes of it, since a step that does nothing looks right."""
    for node, other in _other_operators(workbench, families, only_located):
        if other in never:
            continue

        def change(changed: onnx.NodeProto, other: str = other) -> None:
            changed.op_type = other
            kept = [] if not keep_attributes else _attributes_of(changed, other)
            del changed.attribute[:]
            changed.attribute.extend(kept)

        name = node_name(node)
        tried = workbench.try_model(
            workbench.with_node(node, change),
            evidence=f"{name} is {node.op_type}; with {other} the answers are right",
            fix=f"make {name} a {other}",
        )
        if tried is not None:
            located = {other.output[0] for other in workbench.nodes}
            return replace(tried, elsewhere=node.output[0] not in located)
    return "no other operator of the family mends a named node"


def _other_operators(
    workbench: Workbench, families: Sequence[Sequence[str]], only_located: bool
) -> Iterator[tuple[onnx.NodeProto, str]]:
    """A node, and an operator that may stand in its place."""
    nodes = workbench.nodes[: limits.SUSPECTS_REPLACED]
    if not only_located:
        nodes = _nodes_of_families(workbench, families)
    for node in nodes:
        for family in families:
            if node.op_type not in family:
                continue
            for other in family:
                if other != node.op_type:
                    yield node, other


def _attributes_of(node: onnx.NodeProto, other: str) -> list[onnx.AttributeProto]:
    """The attributes of a node that the other operator has, too."""
    known = onnx.defs.get_schema(other).attributes
    return [attribute for attribute in node.attribute if attribute.name in known]


def _nodes_of_families(
    workbench: Workbench, families: Sequence[Sequence[str]]
) -> list[onnx.NodeProto]:
    known = set(itertools.chain.from_iterable(families))
    located = workbench.nodes[: limits.SUSPECTS_REPLACED]
    outputs = {node.output[0] for node in located}
    others = [
        node
        for node in workbench.model.graph.node
        if node.op_type in known and node.output[0] not in outputs
    ]
    return [*located, *others[: limits.SUSPECTS_REPLACED]]


def try_exchanged_operands(
    workbench: Workbench, op_types: Sequence[str]
) -> tuple[onnx.NodeProto, onnx.ModelProto] | None:
    """The first located node that is right on the witness with two operands exchanged, and the model with them exchanged."""
    for node in workbench.nodes[: limits.SUSPECTS_REPLACED]:
        if node.op_type not in op_types:
            continue
        for one, other in _operand_pairs(node):

            def change(changed: onnx.NodeProto, one: int = one, other: int = other) -> None:
                operands = changed.input
                operands[one], operands[other] = operands[other], operands[one]

            model = workbench.with_node(node, change)
            if workbench.cured(workbench.distance(model)):
                return node, model
    return None


def _operand_pairs(node: onnx.NodeProto) -> Iterator[tuple[int, int]]:
    if len(node.input) < 2:
        return
    if node.op_type == "Where":
        yield 1, 2
        return
    yield from itertools.combinations(range(min(len(node.input), _MOST_OPERANDS)), 2)


def try_exchanged_pieces(workbench: Workbench) -> Tried | None:
    """Two pieces of a Split that is located, or that a located node reads, in each other's place: gates, or queries, keys and values."""
    nodes = workbench.nodes[: limits.SUSPECTS_REPLACED]
    read = {name for node in nodes for name in (*node.input, *node.output)}
    for split in workbench.model.graph.node:
        if split.op_type != "Split" or read.isdisjoint(split.output):
            continue
        for one, other in itertools.combinations(range(min(len(split.output), _MOST_OPERANDS)), 2):
            name = node_name(split)
            tried = workbench.try_model(
                _with_pieces_exchanged(workbench, split, one, other),
                evidence=f"with pieces {one} and {other} of {name} (Split) exchanged the answers are right",
                fix=f"exchange pieces {one} and {other} of {name}",
            )
            if tried is not None:
                return tried
    return None


def _with_pieces_exchanged(
    workbench: Workbench, split: onnx.NodeProto, one: int, other: int
) -> onnx.ModelProto:
    def change(changed: onnx.NodeProto) -> None:
        pieces = changed.output
        pieces[one], pieces[other] = pieces[other], pieces[one]

    return workbench.with_node(split, change)
