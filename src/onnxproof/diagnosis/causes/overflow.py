"""A formula leaves the range of its type, or divides nothing by nothing.

What it is: finite inputs, a finite answer from the module, and NaN or infinity from the file: an exponential that
overflows before its logarithm is taken, a 0/0 for an empty row, infinity times zero where the module selects.

Why it happens: a stable operation (logaddexp, masked select, a guarded mean) was written out by its textbook formula.

How to see it: one node makes NaN or infinity from finite values; everywhere else the answers are right.

How to fix it: shift by the maximum before the exponential, guard the divisor, select with `torch.where`.

Example: `log(exp(a) + exp(b))` for `logaddexp(a, b)`. The cause is told as `precision` where a number grew too large, and
as `nan-handling` otherwise.
"""

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.numerics.relative_error import relative_error

TITLE = "a formula leaves the range of its type"
PRICE = 21
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


def test(bench: Workbench) -> Tried | str:
    """Which node makes what is not finite, and is that all that differs?"""
    gap, found, truth = bench.scene.gap, bench.found, bench.scene.truth
    if gap is None or not gap.lost or bench.scene.case.domain is not None:
        return "the candidate is finite wherever the module is"
    if found is None or any(
        f is None or f.shape != t.shape for f, t in zip(found, truth, strict=True)
    ):
        return "the answers have other shapes"
    left = max(
        relative_error(np.where(np.isfinite(f.astype(np.float64)), f, t), t)
        for f, t in zip(found, truth, strict=True)
        if f is not None
    )
    maker = bench.first_odd()
    if maker is None or left > bench.limit:
        return "the finite part of the answers differs, too"
    node, largest = maker
    grew = largest > _HUGE and node.op_type in _GROWING
    said = "overflows" if grew else "gives NaN or infinity for finite inputs"
    some = any(np.isfinite(f.astype(np.float64)).any() for f in found if f is not None)
    rest = (
        "where the candidate's answers are finite, they are right"
        if some
        else "none of the candidate's answers is finite, so nothing shows that this is all"
    )
    return Tried(
        proven=some or grew,
        after=left,
        code="precision" if grew else "nan-handling",
        evidence=f"{node.name or node.output[0]} ({node.op_type}) {said} on `{bench.scene.case.about}`; {rest}",
    )
