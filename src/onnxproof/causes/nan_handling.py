"""NaN or infinity is treated otherwise.

What it is: an operator that passes NaN on in PyTorch drops it in the runtime (or the other way round), so a spoiled
input gives a clean-looking answer; or a guard that replaces NaN was lost.

Why it happens: max, min, clip and sort have no agreed meaning for NaN, and fast kernels take the cheaper one.

How to see it: the same case with the odd values replaced by ordinary ones agrees.

How to fix it: check inputs before the model, or guard with `torch.where(torch.isnan(x), ...)` in it.

Example: the maximum over time of a sequence with one NaN frame.
"""

import numpy as np

from onnxproof.causes._workbench import Tried, Workbench
from onnxproof.locate._match import relative
from onnxproof.types import Domain

TITLE = "NaN or infinity is treated otherwise"
PRICE = 21
_HUGE = 80.0
"""From here on an exponential leaves float32."""


def test(bench: Workbench) -> Tried | str:
    """Replace what is not finite in the inputs, and see whether the two agree."""
    gap, case = bench.scene.gap, bench.scene.case
    if gap is not None and gap.lost and case.domain is None:
        return _from_finite(bench)
    if gap is None or case.domain not in (Domain.NAN, Domain.INF):
        return "the witness holds neither NaN nor infinity"
    tame = {n: np.where(np.isfinite(a), a, np.asarray(0.5, a.dtype)) if a.dtype.kind == "f" else a for n, a in case.inputs.items()}
    truth = bench.scene.oracle.truth(tame) or bench.scene.oracle.run(tame)
    after = bench.distance(None, inputs=tame, truth=truth)
    return Tried(proven=after <= bench.limit, evidence=f"with finite values in place of the odd ones ({case.about}) the two agree", after=after)


def _from_finite(bench: Workbench) -> Tried | str:
    """Finite inputs, finite truth, and NaN or infinity from the candidate: which node makes it, and is it all that differs?"""
    found, truth = bench.found, bench.scene.truth
    if found is None or any(f is None or f.shape != t.shape for f, t in zip(found, truth, strict=True)):
        return "the answers have other shapes"
    fine = [np.isfinite(f.astype(np.float64)) for f in found if f is not None]
    left = max(relative(np.where(ok, f, t), t) for ok, f, t in zip(fine, found, truth, strict=True) if f is not None)
    maker = bench.first_odd()
    if maker is None or left > bench.limit:
        return "the finite part of the answers differs, too"
    node, largest = maker
    overflow = largest > _HUGE and node.op_type in ("Exp", "Mul", "Pow", "Add", "ReduceSum", "MatMul", "Gemm", "Cast", "Sum", "ReduceSumSquare", "CumSum", "Softplus")
    said = "overflows" if overflow else "gives NaN or infinity for finite inputs"
    return Tried(proven=True, after=left, code="precision" if overflow else "",
                 evidence=f"{node.name or node.output[0]} ({node.op_type}) {said} on `{bench.scene.case.about}`; where the candidate's answers are finite, they are right")
