"""Equal values are taken in another order.

What it is: a sort, a top-k or an arg-max meets exact ties, and the two runtimes choose different ones of them.

Why it happens: neither PyTorch nor every runtime promises which of equal values comes first; ONNX's TopK promises the
lowest index.

How to see it: the module with its ties broken to the first (or last) index gives what the candidate gives.

How to fix it: break ties in the model, for example by adding `arange * 1e-6` to the scores, or sort with `stable=True`.

Example: a detector whose sigmoid scores saturate at 1.0 returns other boxes.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain

TITLE = "equal values are taken in another order"
PRICE = 2


def test(workbench: Workbench) -> Tried | str:
    """The comparison itself broke the ties and found the difference gone."""
    gap = workbench.scene.gap
    if gap is None or gap.domain is not Domain.TIES:
        return "no exact ties explain it"
    return Tried(
        proven=True,
        evidence=f"the module with its ties broken by one rule gives the candidate's `{gap.output}` on case `{gap.case}`",
    )
