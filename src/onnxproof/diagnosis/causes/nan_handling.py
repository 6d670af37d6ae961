"""NaN or infinity is treated otherwise.

What it is: an operator that passes NaN on in PyTorch drops it in the runtime (or the other way round), so a spoiled
input gives a clean-looking answer; or a guard that replaces NaN was lost.

Why it happens: max, min, clip and sort have no agreed meaning for NaN, and fast kernels take the cheaper one.

How to see it: the same case with the odd values replaced by ordinary ones agrees.

How to fix it: check inputs before the model, or guard with `torch.where(torch.isnan(x), ...)` in it.

Example: the maximum over time of a sequence with one NaN frame.
"""

import numpy as np

from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.results import Domain

TITLE = "NaN or infinity is treated otherwise"
PRICE = 4
_ORDINARY = 0.5
"""What stands in the place of NaN and infinity: a value that most operators take. Not measured."""


def test(workbench: Workbench) -> Tried | str:
    """Replace what is not finite in the inputs, and see whether the two agree."""
    case = workbench.scene.case
    if workbench.scene.gap is None or case.domain not in (Domain.NAN, Domain.INF):
        return "the witness holds neither NaN nor infinity"
    inputs = {name: _make_finite(array) for name, array in case.inputs.items()}
    after = workbench.distance(None, inputs=inputs, truth=workbench.truth_of(inputs))
    return Tried(
        proven=after <= workbench.limit,
        evidence=f"with finite values in place of the odd ones ({case.about}) the two agree",
        after=after,
    )


def _make_finite(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.where(np.isfinite(array), array, np.asarray(_ORDINARY, array.dtype))
