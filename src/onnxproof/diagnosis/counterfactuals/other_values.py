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
        best = min(_rewirings(workbench, node), key=lambda one: one.error, default=None)
        if best is None:
            continue
        tried = _try(workbench, best)
        if tried is not None:
            return tried
    return None


def _try(workbench: Workbench, rewiring: _Rewiring) -> Tried | None:
    node = rewiring.node
    name = node_name(node)
    present = node.input[rewiring.place]

    def change(changed: onnx.NodeProto) -> None:
        changed.input[rewiring.place] = rewiring.value

    return workbench.try_model(
        workbench.with_node(node, change),
        evidence=f"{name} ({node.op_type}) reads `{present}`; with `{rewiring.value}` in its place the answers are right",
        fix=f"let {name} read `{rewiring.value}`",
        code=_code(workbench, present, rewiring.value),
    )


def _code(workbench: Workbench, present: str, right: str) -> str:
    """What is computed from the value that is read was left out; any other value is one of another place."""
    for node in workbench.model.graph.node:
        if right in node.output and present in node.input:
            return "missing-op"
    return "axis-order"


def _rewirings(workbench: Workbench, node: onnx.NodeProto) -> Iterator[_Rewiring]:
    """The values with which the node is much nearer to what the module computes there."""
    entry = workbench.counterpart(node)
    truth = None if entry is None else workbench.located.fetch(entry.place)
    if truth is None:
        return
    before = _values_before(workbench, node)
    read = [name for name in node.input if name]
    values = workbench.values([*dict.fromkeys([*read, *before])])
    if any(name not in values for name in read):
        return
    inputs = {name: values[name] for name in read}
    own_error = _error(workbench, node, inputs, truth)
    for place, name in _computed_inputs(workbench, node):
        alike = [other for other in before if _is_alike(values.get(other), values[name])]
        for other in alike[:_MOST_VALUES]:
            error = _error(workbench, node, {**inputs, name: values[other]}, truth)
            if other not in read and error * limits.LIKELY_IMPROVEMENT < own_error:
                yield _Rewiring(node, place, other, error)


def _computed_inputs(workbench: Workbench, node: onnx.NodeProto) -> list[tuple[int, str]]:
    """What a node reads that is no constant, with its places."""
    constants = {tensor.name for tensor in workbench.model.graph.initializer}
    read = enumerate(node.input)
    return [(place, name) for place, name in read if name and name not in constants]


def _values_before(workbench: Workbench, node: onnx.NodeProto) -> list[str]:
    """Inputs of the graph and what nodes before this one give, the nearest first."""
    graph = workbench.model.graph
    names = [port.name for port in graph.input]
    for other in graph.node:
        if other.output[0] == node.output[0]:
            break
        if other.op_type != "Constant":
            names += [name for name in other.output if name]
    return names[::-1]


def _is_alike(value: Array | None, other: Array) -> bool:
    """Whether it could be read in the place of the other, and says something else."""
    if value is None or value.shape != other.shape or value.dtype != other.dtype:
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
