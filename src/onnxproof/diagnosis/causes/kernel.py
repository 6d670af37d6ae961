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
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.results import Domain, Stage
from onnxproof.runtimes.session.execution import feed

TITLE = "a kernel of the runtime is off"
PRICE = 6
CODES = ("kernel", "precision", "nan-handling")


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
    observed = f"{name}, run by itself, gives other values than the standard for the same inputs"
    by_standard = workbench.try_counterfactual(
        standard_evaluation.of_nodes(workbench, [workbench.suspect]),
        f"{observed}; with the standard's values in its place the answers are right",
        code=_code(workbench),
    )
    if by_standard is not None:
        return by_standard
    return Tried(evidence=observed, code=_code(workbench))


def _code(workbench: Workbench) -> str:
    """NaN and infinity are treated otherwise where only they show it."""
    if workbench.scene.case.domain in (Domain.NAN, Domain.INF):
        return "nan-handling"
    return ""


def _explain_lost_digits(workbench: Workbench, name: str) -> Tried:
    """The kernel is right: the file computed in float64 tells whether it is the precision."""
    observed = f"{name} does what the standard says with what it is given"
    wide = workbench.try_counterfactual(
        standard_evaluation.in_float64(workbench),
        f"{observed}; with every operator of the file in float64 the answers are right",
        code="precision",
    )
    if wide is not None:
        return wide
    return Tried(code="precision", evidence=f"{observed}; the digits were lost before")


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
