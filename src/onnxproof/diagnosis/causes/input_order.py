"""Inputs or outputs are exchanged.

What it is: the file's names stand in another order than the parameters of `forward`, so that feeding by name (or by
position) gives each input to another one's place; the same for outputs.

Why it happens: `input_names` are applied by position; dict outputs are sorted; a wrapper changed the order.

How to see it: with two inputs of one shape exchanged, the answers are right.

How to fix it: give `input_names` in the order of the parameters of `forward`.

Example: `token_type_ids` and `attention_mask` exchanged: all-ones inputs hide it. The classes of a classifier, or the columns of a one-hot
encoding, in the order in which they were seen instead of the sorted one.
"""

from onnxproof.diagnosis.counterfactuals import table_order
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "inputs or outputs are exchanged"
PRICE = 3
CODES = ("input-order", "output-order")


def test(workbench: Workbench) -> Tried | str:
    """Names of columns in order; then the other pairing that locating found to be right."""
    tried = table_order.try_sorted_names(workbench)
    if isinstance(tried, Tried):
        return tried
    pairing = workbench.located.exchanged
    if pairing is None:
        tried = table_order.try_other_columns(workbench)
        if isinstance(tried, str):
            return "no exchange of inputs or outputs of one shape, or of columns, comes right"
        return tried
    scene = workbench.scene

    def error(case: TrialCase) -> float | None:
        try:
            candidate = Candidate(scene.backend, scene.path, pairing.signature, Clock())
            return case.scene.error(candidate.run(case.inputs))
        except OnnxproofError:
            return float("inf")

    exchanged = workbench.try_counterfactual(
        Counterfactual(error=error, in_reference=False),
        f"{pairing.what}; paired so, the answers are right",
        code=f"{pairing.kind}-order",
    )
    return exchanged or f"{pairing.what}: on the witness alone"
