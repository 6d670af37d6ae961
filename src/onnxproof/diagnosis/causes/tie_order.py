"""Equal values are taken in another order.

What it is: a sort, a top-k or an arg-max meets exact ties, and the two runtimes choose different ones of them.

Why it happens: neither PyTorch nor every runtime promises which of equal values comes first; ONNX's TopK promises the
lowest index.

How to see it: the module with its ties broken to the first (or last) index gives what the candidate gives.

How to fix it: break ties in the model, for example by adding `arange * 1e-6` to the scores, or sort with `stable=True`.

Example: a detector whose sigmoid scores saturate at 1.0 returns other boxes.
"""

from functools import partial

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Domain

TITLE = "equal values are taken in another order"
PRICE = 2
_RULES = ("first", "last")


def test(workbench: Workbench) -> Tried | str:
    """The comparison itself broke the ties and found the difference gone."""
    gap = workbench.scene.gap
    if gap is None or gap.domain is not Domain.TIES:
        return "no exact ties explain it"
    reference = workbench.scene.reference
    for rule in _RULES:
        tried = workbench.try_counterfactual(
            workbench.changed_answers(partial(reference.ties, rule=rule)),
            f"the module with its ties broken to the {rule} index gives what the candidate gives",
        )
        if tried is not None:
            return tried
    observed = f"with ties broken by one rule the two agree on `{gap.output}` of case `{gap.case}`"
    return Tried(evidence=observed)
