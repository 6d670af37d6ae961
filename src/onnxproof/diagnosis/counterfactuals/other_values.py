"""A located node reads another value of the file than it should: a skip connection around the wrong block, a value from before its norm."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.standard_evaluation import standard_values_of
from onnxproof.diagnosis.counterfactuals.workbench import (
    Array,
    Tried,
    Workbench,
    node_name,
)
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error

_MOST_VALUES = 24
"""Values before a node that are tried in the place of one that it reads, the nearest first. Not measured."""
_MOST_FILES = 8
"""The same where each is a run of the whole file. Not measured."""


@dataclass(frozen=True, slots=True)
class _Rewiring:
    """A node that reads another value at one place, and how far it then is from what the module computes there."""

    node: onnx.NodeProto
    place: int
    value: str
    error: float


def try_other_values(workbench: Workbench) -> Tried | None:
    """Let a located node read that value before it with which it computes what the module does there."""
    for node in workbench.nodes[: limits.SUSPECTS_COMPARED]:
        for rewirings in (_nearer_nodes, _nearer_answers):
            best = min(rewirings(workbench, node), key=lambda one: one.error, default=None)
            tried = None if best is None else _try(workbench, best)
            if tried is not None:
                return tried
    return None


def _try(workbench: Workbench, rewiring: _Rewiring) -> Tried | None:
    node = rewiring.node
    name = node_name(node)
    present = node.input[rewiring.place]
    extra = _node_too_many(workbench, present, rewiring.value)
    if extra is not None:
        return workbench.try_model(
            _rewired(workbench, node, rewiring.place, rewiring.value),
            evidence=f"without {node_name(extra)} ({extra.op_type}) the answers are right",
            fix=f"take {node_name(extra)} out",
            code="attribute",
        )
    return workbench.try_model(
        _rewired(workbench, node, rewiring.place, rewiring.value),
        evidence=f"{name} ({node.op_type}) reads `{present}`; with `{rewiring.value}` in its place the answers are right",
        fix=f"let {name} read `{rewiring.value}`",
        code=_code(workbench, present, rewiring.value),
    )


def _node_too_many(workbench: Workbench, present: str, right: str) -> onnx.NodeProto | None:
    """The node between the two values, where nothing else reads what it makes: it is not the order that is wrong, it is one operation too many."""
    graph = workbench.model.graph
    readers = [node for node in graph.node if present in node.input]
    if len(readers) != 1 or any(port.name == present for port in graph.output):
        return None
    between = [node for node in graph.node if present in node.output and right in node.input]
    return next(iter(between), None)


def _code(workbench: Workbench, present: str, right: str) -> str:
    """One input of the file for another; what is computed from the value that is read was left out; any other value is one of another place."""
    inputs = {port.name for port in workbench.model.graph.input}
    if {present, right} <= inputs:
        return "input-order"
    for node in workbench.model.graph.node:
        if right in node.output and present in node.input:
            return "missing-op"
    return "axis-order"


def _nearer_nodes(workbench: Workbench, node: onnx.NodeProto) -> Iterator[_Rewiring]:
    """The values with which the node is much nearer to what the module computes there."""
    entry = workbench.counterpart(node)
    truth = None if entry is None else workbench.located.fetch(entry.place)
    if truth is None:
        return
    values = _known_values(workbench, node)
    inputs = {name: values[name] for name in node.input if name in values}
    own_error = _error(workbench, node, inputs, truth)
    for place, other in _exchanges(workbench, node, values, _MOST_VALUES):
        error = _error(workbench, node, {**inputs, node.input[place]: values[other]}, truth)
        if error * limits.LIKELY_IMPROVEMENT < own_error:
            yield _Rewiring(node, place, other, error)


def _nearer_answers(workbench: Workbench, node: onnx.NodeProto) -> Iterator[_Rewiring]:
    """The values with which the answers are much nearer: the module may never compute what the node does alone, such as a product without its bias."""
    values = _known_values(workbench, node)
    for place, other in _exchanges(workbench, node, values, _MOST_FILES):
        error = workbench.distance(_rewired(workbench, node, place, other))
        if error * limits.LIKELY_IMPROVEMENT < workbench.before:
            yield _Rewiring(node, place, other, error)


def _known_values(workbench: Workbench, node: onnx.NodeProto) -> dict[str, Array]:
    """What the node reads and what it might read; nothing where a part of what it reads is not known."""
    read = [name for name in node.input if name]
    values = workbench.values([*dict.fromkeys([*read, *values_before(workbench, node)])])
    if any(name not in values for name in read):
        return {}
    return values


def _exchanges(
    workbench: Workbench, node: onnx.NodeProto, values: dict[str, Array], most: int
) -> Iterator[tuple[int, str]]:
    """Each place of the node with the values that could be read there instead."""
    before = values_before(workbench, node)
    for place, name in _computed_inputs(workbench, node):
        excluded = {*node.input, *_chain_before(workbench, name)}
        alike = [
            other
            for other in before
            if other not in excluded and _is_alike(values.get(other), values.get(name))
        ]
        for other in alike[:most]:
            yield place, other


def _rewired(workbench: Workbench, node: onnx.NodeProto, place: int, value: str) -> onnx.ModelProto:
    """The file with a node that reads another value."""

    def change(changed: onnx.NodeProto) -> None:
        changed.input[place] = value

    return workbench.with_node(node, change)


def _chain_before(workbench: Workbench, name: str) -> Iterator[str]:
    """The values from which a value is computed one after the other: to read one of these is to leave operations out, which other causes try."""
    producers = {output: node for node in workbench.model.graph.node for output in node.output}
    while name in producers:
        computed = _computed_inputs(workbench, producers[name])
        if len(computed) != 1:
            return
        name = computed[0][1]
        yield name


def _computed_inputs(workbench: Workbench, node: onnx.NodeProto) -> list[tuple[int, str]]:
    """What a node reads that is no constant, with its places."""
    constants = {tensor.name for tensor in workbench.model.graph.initializer}
    for other in workbench.model.graph.node:
        if other.op_type == "Constant":
            constants.add(other.output[0])
    read = enumerate(node.input)
    return [(place, name) for place, name in read if name and name not in constants]


def values_before(workbench: Workbench, node: onnx.NodeProto) -> list[str]:
    """Inputs of the graph and what nodes before this one give, the nearest first."""
    graph = workbench.model.graph
    names = [port.name for port in graph.input]
    for other in graph.node:
        if other.output[0] == node.output[0]:
            break
        if other.op_type != "Constant":
            names += [name for name in other.output if name]
    return names[::-1]


def _is_alike(value: Array | None, other: Array | None) -> bool:
    """Whether it could be read in the place of the other, and says something else."""
    if value is None or other is None or value.shape != other.shape or value.dtype != other.dtype:
        return False
    return not np.array_equal(value, other)


def _error(
    workbench: Workbench, node: onnx.NodeProto, inputs: dict[str, Array], truth: Array
) -> float:
    """How far the node is from the module's value when it reads these."""
    try:
        computed = standard_values_of(workbench, [node], inputs)
    except (OnnxproofError, ValueError):
        return float("inf")
    return relative_error(computed.get(node.output[0]), truth)
