"""Inputs or outputs are exchanged.

What it is: the file's names stand in another order than the parameters of `forward`, so that feeding by name (or by
position) gives each input to another one's place; the same for outputs.

Why it happens: `input_names` are applied by position; dict outputs are sorted; a wrapper changed the order.

How to see it: with two inputs of one shape exchanged, the answers are right.

How to fix it: give `input_names` in the order of the parameters of `forward`.

Example: `token_type_ids` and `attention_mask` exchanged: all-ones inputs hide it.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "inputs or outputs are exchanged"
PRICE = 3
CODES = ("input-order", "output-order")


def test(workbench: Workbench) -> Tried | str:
    """Locating tried the other pairings; one of them is right."""
    pairing = workbench.located.exchanged
    if pairing is None:
        return "no exchange of inputs or outputs of one shape comes right"
    scene = workbench.scene

    def error(case: TrialCase) -> float | None:
        try:
            candidate = Candidate(scene.backend, scene.path, pairing.signature, Clock())
            return case.scene.error(candidate.run(case.inputs))
        except OnnxproofError:
            return float("inf")

    tried = workbench.try_counterfactual(
        Counterfactual(error=error, in_reference=False),
        f"{pairing.what}; paired so, the answers are right",
        code=f"{pairing.kind}-order",
    )
    return tried or f"{pairing.what}: on the witness alone"
