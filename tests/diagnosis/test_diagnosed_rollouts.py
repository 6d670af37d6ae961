"""A proven cause says what is wrong with the rollouts that it was found in."""

from dataclasses import replace

import pytest
from support import made_proofs

from onnxproof.diagnosis.diagnose import Diagnosis
from onnxproof.results import Cause, Rollout


@pytest.mark.parametrize(
    ("code", "proven", "words"),
    [
        ("position", True, ["position", ""]),
        ("position", False, ["step", ""]),
        ("attribute", True, ["step", ""]),
    ],
)
def test_positions_are_what_is_wrong_where_they_are_the_proven_cause(
    code: str, proven: bool, words: list[str]
) -> None:
    bad = Rollout(schedule="roll:b1:1x3", backend="ort", steps=3, first_bad_step=1, what="step")
    right = Rollout(schedule="roll:b2:1x3", backend="ort", steps=3)
    proof = replace(made_proofs.full(), rollouts=(bad, right))
    cause = Cause(code=code, title=code, proven=proven, evidence="tried", before=None, after=None)
    explained = Diagnosis(causes=(cause,)).added_to(proof)
    assert [rollout.what for rollout in explained.rollouts] == words
