"""One proof of a folder: what one file alone does not say, the loop may."""

from dataclasses import replace
from pathlib import Path

import pytest
from support import made_proofs

from onnxproof.options import VerifyOptions
from onnxproof.packages.combining import ProvenComponent, combine
from onnxproof.packages.package import Component, Package, Role
from onnxproof.packages.rollouts import Rolled
from onnxproof.results import Finding, Rollout, Verdict, judging
from onnxproof.results.proof import Proof


def _combined(code: str, *, loop: bool, bad: int | None = None) -> Proof:
    """A folder of one file of which too little was compared, and maybe one rollout of the whole."""
    void = Finding(code=code, what="too little was compared", voids=True)
    alone = replace(
        made_proofs.full(),
        gaps=(made_proofs.gap("example", "ordinary", "ort", 1.0),),
        notes=(),
        findings=(void,),
        error="",
    )
    component = Component(file="model.onnx", role=Role.FIRST, path=Path("model.onnx"))
    package = Package(folder=Path("folder"), layout="optimum", components=(component,))
    rollout = Rollout(schedule="roll:b1:1x3", backend="ort", steps=3, first_bad_step=bad)
    rolled = [Rolled(rollout=rollout, file="model.onnx")] if loop else []
    proven = ProvenComponent(component=component, proof=alone)
    return combine(package, "model", "", [proven], rolled, VerifyOptions())


@pytest.mark.parametrize(
    ("code", "loop", "verdict"),
    [
        ("budget", True, Verdict.FAITHFUL),
        ("budget", False, Verdict.VACUOUS),
        (judging.NOT_CONFIRMED, True, Verdict.VACUOUS),
    ],
)
def test_a_file_that_says_too_little_alone_is_judged_by_the_loop(
    code: str, loop: bool, verdict: Verdict
) -> None:
    proof = _combined(code, loop=loop)
    assert proof.verdict is verdict
    (found,) = [finding for finding in proof.findings if finding.code == code]
    assert found.what.startswith("model.onnx: too little was compared")
    assert ("judged by the loop alone" in found.what) is (verdict is Verdict.FAITHFUL)
