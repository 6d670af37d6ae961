"""A state comes back wrong: the answers of one call are right, and the next call reads something else.

What it is: a model that feeds itself returns its cache (or hidden state) in another order, cut, shifted, without its newest
place, or as it went in.

Why it happens: outputs of a nested cache were flattened in another order; key and value were exchanged for a layer; a slot is
off by one; a maximal length was applied to what is returned; a state was reset inside of the graph.

How to see it: the rollout is right at its first call and wrong from the second on, and right again from the reference's own
states (`what` is `cache`). The reference with its states changed in that way gives what the candidate gives.

How to fix it: return the states in the order and at the places in which the next call reads them; export again.

Example: `return logits, value_cache, key_cache`.
"""

from collections.abc import Mapping
from functools import partial

from onnxproof.diagnosis.counterfactuals.loop_states import WrongStates, loop_of, wrong_states
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.results import Fix

TITLE = "a state comes back wrong"
PRICE = 3


def test(workbench: Workbench) -> Tried | str:
    """Change the states that the reference returns, in each of the usual ways."""
    scene = workbench.scene
    confirmed = any(finding.code == "loop" for finding in workbench.findings)
    loop = loop_of(scene.signature, confirmed=confirmed)
    if loop is None:
        return "no output is an input of the next call"
    outputs = workbench.candidate_outputs
    if outputs is None:
        return "the candidate does not answer"
    witness = scene.case.inputs
    for wrong in wrong_states(loop, scene.signature, scene.reference, witness, outputs):
        if workbench.late:
            break
        tried = workbench.try_counterfactual(
            workbench.changed_answers(partial(_answers, workbench, wrong)),
            f"{wrong.what}: with its states changed so, the reference gives what the candidate gives",
            fix=Fix(
                kind="export",
                what="return the states as the next call reads them, and export again",
            ),
        )
        if tried is not None:
            return tried
    return "no exchange, cut or shift of the states gives what the candidate gives"


def _answers(
    workbench: Workbench, wrong: WrongStates, inputs: Mapping[str, Array]
) -> list[Array] | None:
    try:
        return wrong.change(inputs, workbench.scene.reference.run(inputs))
    except Exception:  # the user's own module, or a state that has no such place
        return None
