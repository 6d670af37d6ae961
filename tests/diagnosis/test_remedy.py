"""Mending: what is better than before, what is worth a file, and what is proven by several fixes together."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from support.made_evidence import evidence_on, gap_of
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.counterfactuals.workbench import Means
from onnxproof.diagnosis.diagnose import Diagnosis
from onnxproof.diagnosis.locate import Scene
from onnxproof.diagnosis.remedy import Mended, _is_better, _proven_together, mend
from onnxproof.results import Cause, Finding, Fix, Gap, Verdict
from onnxproof.results.proof import Proof

X = normal(4, 6)


def model(factor: float) -> onnx.ModelProto:
    nodes = [helper.make_node("Mul", ["x", "factor"], ["y"], "scale")]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_between(tmp_path, model(2), model(3), {"x": X})


@pytest.fixture
def proof(scene: Scene) -> Proof:
    return evidence_on(scene, [gap_of("case", ratio=1e6)]).proof


def judged(proof: Proof, verdict: Verdict, *gaps: Gap) -> Proof:
    return replace(proof, verdict=verdict, gaps=gaps or proof.gaps)


@pytest.mark.parametrize(
    ("before", "after", "better"),
    [
        (Verdict.DIVERGED, Verdict.FAITHFUL, True),
        (Verdict.DIVERGED, Verdict.DRIFT, True),
        (Verdict.DRIFT, Verdict.DIVERGED, False),
        (Verdict.DIVERGED, Verdict.VACUOUS, False),
        (Verdict.VACUOUS, Verdict.ERROR, False),
        (Verdict.ERROR, Verdict.ERROR, False),
        (Verdict.ERROR, Verdict.DRIFT, True),
    ],
)
def test_a_better_verdict_is_better(
    proof: Proof, before: Verdict, after: Verdict, better: bool
) -> None:
    assert _is_better(judged(proof, before), judged(proof, after)) is better


def test_with_the_same_verdict_a_tenth_of_the_error_is_better(proof: Proof) -> None:
    def after(ratio: float, **changes: Any) -> Proof:
        return judged(proof, Verdict.DIVERGED, gap_of("case", ratio=ratio, **changes))

    assert _is_better(proof, after(9e4))
    assert not _is_better(proof, after(1.1e5))
    assert not _is_better(proof, after(9e4, lost=1))


def test_without_a_gap_nothing_is_better(proof: Proof) -> None:
    assert not _is_better(proof, replace(proof, gaps=()))


def cause(code: str, *, fix: Fix | None = None) -> Cause:
    return Cause(code=code, title=code, proven=False, evidence="", before=1e6, after=1e3, fix=fix)


def test_causes_that_were_likely_one_by_one_are_proven_where_all_fixes_together_are_faithful(
    proof: Proof,
) -> None:
    removed = [cause("weights", fix=Fix(kind="graph", what="other weights")), cause("state")]
    faithful = _proven_together(removed, judged(proof, Verdict.FAITHFUL))
    assert [(one.code, one.proven) for one in faithful] == [("weights", True), ("state", True)]
    assert faithful[0].fix is not None and faithful[0].fix.verdict is Verdict.FAITHFUL
    assert faithful[1].fix is None
    assert _proven_together(removed, judged(proof, Verdict.DRIFT)) == tuple(removed)


def made(proof: Proof, verdict: Verdict, **changes: Any) -> Mended:
    mended = Mended(model=model(2), options=(), verdict=verdict, proof=proof)
    return replace(mended, **changes)


def test_a_graph_is_worth_a_file_where_it_is_faithful_or_better(proof: Proof) -> None:
    assert made(proof, Verdict.FAITHFUL).worth_writing
    assert made(proof, Verdict.DIVERGED, better=True).worth_writing
    assert not made(proof, Verdict.DIVERGED).worth_writing
    assert not made(proof, Verdict.FAITHFUL, better=True, model=None).worth_writing


def test_the_mended_graph_is_written_and_its_path_remembered(proof: Proof, tmp_path: Path) -> None:
    mended = made(proof, Verdict.FAITHFUL)
    written = mended.written_to(tmp_path / "mended.onnx")
    assert written.path == tmp_path / "mended.onnx" and mended.path is None
    assert onnx.load(tmp_path / "mended.onnx") == model(2)


def test_without_a_location_nothing_is_mended_and_the_proof_stays(scene: Scene) -> None:
    finding = Finding(code="unexplained", what="no time", help="")
    evidence = evidence_on(scene, [gap_of("case")])
    done = mend(evidence, Diagnosis(findings=(finding,)), Means())
    assert done.model is None and done.options == () and done.causes == ()
    assert done.verdict is Verdict.DIVERGED and not done.better
    assert done.proof == replace(evidence.proof, findings=(finding,))
