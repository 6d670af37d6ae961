"""NaN or infinity is treated otherwise.

What it is: an operator that passes NaN on in PyTorch drops it in the runtime (or the other way round), so a spoiled
input gives a clean-looking answer; or a guard that replaces NaN was lost.

Why it happens: max, min, clip and sort have no agreed meaning for NaN, and fast kernels take the cheaper one.

How to see it: the same case with the odd values replaced by ordinary ones agrees.

How to fix it: check inputs before the model, or guard with `torch.where(torch.isnan(x), ...)` in it.

Example: the maximum over time of a sequence with one NaN frame.
"""

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain

TITLE = "NaN or infinity is treated otherwise"
PRICE = 4


def test(bench: Workbench) -> Tried | str:
    """Replace what is not finite in the inputs, and see whether the two agree."""
    gap, case = bench.scene.gap, bench.scene.case
    if gap is None or case.domain not in (Domain.NAN, Domain.INF):
        return "the witness holds neither NaN nor infinity"
    tame = {
        n: np.where(np.isfinite(a), a, np.asarray(0.5, a.dtype)) if a.dtype.kind == "f" else a
        for n, a in case.inputs.items()
    }
    truth = bench.scene.reference.truth(tame) or bench.scene.reference.run(tame)
    after = bench.distance(None, inputs=tame, truth=truth)
    return Tried(
        proven=after <= bench.limit,
        evidence=f"with finite values in place of the odd ones ({case.about}) the two agree",
        after=after,
    )
