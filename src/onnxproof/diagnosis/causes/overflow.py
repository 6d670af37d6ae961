"""A formula leaves the range of its type, or divides nothing by nothing.

What it is: finite inputs, a finite answer from the module, and NaN or infinity from the file: an exponential that
overflows before its logarithm is taken, a 0/0 for an empty row, infinity times zero where the module selects.

Why it happens: a stable operation (logaddexp, masked select, a guarded mean) was written out by its textbook formula.

How to see it: one node makes NaN or infinity from finite values; everywhere else the answers are right.

How to fix it: shift by the maximum before the exponential, guard the divisor, select with `torch.where`.

Example: `log(exp(a) + exp(b))` for `logaddexp(a, b)`. The cause is named `precision` where a number grew too large, and
as `nan-handling` otherwise.
"""

from collections.abc import Sequence

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals import standard_evaluation
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench, node_name
from onnxproof.numerics.relative_error import relative_error

TITLE = "a formula leaves the range of its type"
PRICE = 21
CODES = ("precision", "nan-handling")
_HUGE = 80.0
"""From here on an exponential leaves float32."""
_GROWING = frozenset(
    {
        "Exp",
        "Mul",
        "Pow",
        "Add",
        "ReduceSum",
        "MatMul",
        "Gemm",
        "Cast",
        "Sum",
        "ReduceSumSquare",
        "CumSum",
        "Softplus",
    }
)


def test(workbench: Workbench) -> Tried | str:
    """Which node makes what is not finite, and is that all that differs?"""
    scene = workbench.scene
    if scene.gap is None or not scene.gap.lost or scene.case.domain is not None:
        return "the candidate is finite wherever the module is"
    outputs = _outputs_of_same_shape(workbench)
    if outputs is None:
        return "the answers have other shapes"
    error = _error_where_finite(outputs, scene.truth)
    first = first_nonfinite_node(workbench)
    if first is None or error > workbench.limit:
        return "the finite part of the answers differs, too"
    node, largest_input = first
    return _describe(workbench, node, outputs, error, largest_input)


def _describe(
    workbench: Workbench,
    node: onnx.NodeProto,
    outputs: Sequence[Array],
    error: float,
    largest_input: float,
) -> Tried:
    """What the node does; proven where the rest of the answers is right, or the number that grew is seen."""
    code = "nan-handling"
    what = "gives NaN or infinity for finite inputs"
    if largest_input > _HUGE and node.op_type in _GROWING:
        code = "precision"
        what = "overflows"
    some_finite = any(np.isfinite(output.astype(np.float64)).any() for output in outputs)
    rest = "none of the candidate's answers is finite, so nothing shows that this is all"
    if some_finite:
        rest = "where the candidate's answers are finite, they are right"
    evidence = (
        f"{node_name(node)} ({node.op_type}) {what} on `{workbench.scene.case.about}`; {rest}"
    )
    wide = workbench.try_counterfactual(
        standard_evaluation.in_float64(workbench),
        f"{evidence}; with every operator of the file in float64 the answers are right",
        code="precision",
    )
    return wide or Tried(after=error, code=code, evidence=evidence)


def _outputs_of_same_shape(workbench: Workbench) -> list[Array] | None:
    """The candidate's outputs, if each has the shape of its truth."""
    if workbench.candidate_outputs is None:
        return None
    outputs: list[Array] = []
    for output, truth in zip(workbench.candidate_outputs, workbench.scene.truth, strict=True):
        if output is None or output.shape != truth.shape:
            return None
        outputs.append(output)
    return outputs


def _error_where_finite(outputs: Sequence[Array], truths: Sequence[Array]) -> float:
    """The relative error of the outputs with the truth in the place of what is not finite."""
    errors = []
    for output, truth in zip(outputs, truths, strict=True):
        finite = np.isfinite(output.astype(np.float64))
        errors.append(relative_error(np.where(finite, output, truth), truth))
    return max(errors)


def first_nonfinite_node(workbench: Workbench) -> tuple[onnx.NodeProto, float] | None:
    """The first node that makes NaN or infinity from finite values, and the largest of those; read without optimisation."""
    nodes = workbench.model.graph.node
    values = workbench.values([name for node in nodes for name in node.output])
    for node in nodes:
        outputs = _arrays(values, node.output, "f")
        inputs = [array.astype(np.float64) for array in _arrays(values, node.input, "fiu")]
        if not _all_finite(outputs) and _all_finite(inputs):
            sizes = [float(np.abs(array).max(initial=0)) for array in inputs]
            return node, max(sizes, default=0.0)
    return None


def _arrays(values: dict[str, Array], names: Sequence[str], kinds: str) -> list[Array]:
    """The values of these names that are numbers of some kinds."""
    return [values[name] for name in names if name in values and values[name].dtype.kind in kinds]


def _all_finite(arrays: Sequence[Array]) -> bool:
    return all(np.isfinite(array).all() for array in arrays)
