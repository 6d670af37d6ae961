"""A kernel of the runtime computes something else than the standard says.

What it is: the graph, evaluated by the standard in float64, gives what the module gives; the runtime does not, even
without optimisation.

Why it happens: a kernel takes a shortcut (one-pass variance, a float accumulator for integers, a polynomial that
leaves its range) or has a plain bug.

How to see it: one node's output differs from the standard's for the same inputs.

How to fix it: another version or provider of the runtime, or another formulation; `--repro` writes the bug report.

Example: the sum of int64 values beyond 2**53.
"""

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals import standard_evaluation
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.results import Domain, Stage
from onnxproof.runtimes.session.execution import feed

TITLE = "a kernel of the runtime is off"
PRICE = 6
CODES = ("kernel", "precision", "nan-handling")
_MOST_BEFORE = 12
"""Nodes before the located one that are run by themselves. Not measured."""


def test(workbench: Workbench) -> Tried | str:
    """Locating evaluated the graph by the standard, and found it right."""
    location = workbench.location
    if location.stage is not Stage.RUNTIME:
        return "the graph itself is wrong, whatever runs it"
    if not location.suspects:
        return Tried(evidence=location.evidence, after=workbench.before)
    suspect = location.suspects[0]
    name = f"{suspect.node} ({suspect.op_type})"
    error = None
    if workbench.suspect is not None:
        error = kernel_error(workbench, workbench.suspect)
    if error is None:
        return Tried(evidence=f"{name} could not be run by itself", after=workbench.before)
    assert workbench.suspect is not None
    if error <= limits.SAME_KERNEL:
        return _explain_lost_digits(workbench, name)
    observed, by_standard = _replace_kernel(workbench, workbench.suspect, name)
    if by_standard is not None:
        return by_standard
    return Tried(evidence=observed, code=_code(workbench))


def _replace_kernel(
    workbench: Workbench, node: onnx.NodeProto, name: str
) -> tuple[str, Tried | None]:
    """What is seen of a kernel that is off, and the answers with the standard's values in its place."""
    observed = f"{name}, run by itself, gives other values than the standard for the same inputs"
    tried = workbench.try_counterfactual(
        standard_evaluation.of_nodes(workbench, [node]),
        f"{observed}; with the standard's values in its place the answers are right",
        code=_code(workbench),
    )
    return observed, tried


def _code(workbench: Workbench) -> str:
    """NaN and infinity are treated otherwise where only they show it."""
    if workbench.scene.case.domain in (Domain.NAN, Domain.INF):
        return "nan-handling"
    return ""


def _explain_lost_digits(workbench: Workbench, name: str) -> Tried:
    """The located kernel is right: one before it is off, all of them together are, or it is the precision.

    1. A node on the way to it, by itself: infinity and the largest number look alike to locating, and not to what divides by them.
    2. Every kernel by the standard, in the types of the file: right then, it is no matter of precision.
    3. The file in float64.
    """
    earlier = _earlier_kernel(workbench)  # 1
    if earlier is not None:
        return earlier
    observed = f"{name} does what the standard says with what it is given"
    own_types = workbench.try_counterfactual(  # 2
        standard_evaluation.in_own_types(workbench),
        f"{observed}; with every operator by the standard, in the types of the file, the answers are right",
        code=_code(workbench),
    )
    if own_types is not None:
        return own_types
    wide = workbench.try_counterfactual(  # 3
        standard_evaluation.in_float64(workbench),
        f"{observed}; with every operator of the file in float64 the answers are right",
        code="precision",
    )
    if wide is not None:
        return wide
    return Tried(code="precision", evidence=f"{observed}; the digits were lost before")


def _earlier_kernel(workbench: Workbench) -> Tried | None:
    """The nearest node before the located one whose kernel is off, where the standard's values in its place make the answers right."""
    for node in _nodes_before(workbench):
        error = kernel_error(workbench, node)
        if error is None or error <= limits.SAME_KERNEL:
            continue
        name = f"{node_name(node)} ({node.op_type})"
        _observed, tried = _replace_kernel(workbench, node, name)
        if tried is not None:
            return tried
    return None


def _nodes_before(workbench: Workbench) -> list[onnx.NodeProto]:
    """What the located node reads from, nearest first."""
    producers = {output: node for node in workbench.model.graph.node for output in node.output}
    assert workbench.suspect is not None
    waiting = list(workbench.suspect.input)
    found: dict[str, onnx.NodeProto] = {}
    while waiting and len(found) < _MOST_BEFORE:
        node = producers.get(waiting.pop(0))
        if node is not None and node.output[0] not in found:
            found[node.output[0]] = node
            waiting += node.input
    return [node for node in found.values() if node.op_type != "Constant"]


def kernel_error(workbench: Workbench, node: onnx.NodeProto) -> float | None:
    """How far the runtime's output of one node is from the standard's for the same inputs; None where one of them is unknown."""
    scene = workbench.scene
    values = workbench.values(list(node.output))
    try:
        feeds = feed(scene.case.inputs, scene.signature)
        expected = standard_evaluation.standard_values(workbench, [node], feeds)
    except (OnnxproofError, KeyError):
        return None
    known = [name for name in node.output if name in values and name in expected]
    return max((_distance(values[name], expected[name]) for name in known), default=None)


def _distance(value: Array, expected: Array | None) -> float:
    """The relative distance; of integers whether they differ at all, since beyond 2**53 a float does not tell."""
    if expected is not None and value.dtype.kind in "iub" and value.shape == expected.shape:
        return float(not np.array_equal(value, expected))
    return relative_error(expected, value)
