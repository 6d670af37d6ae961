"""Each verb from Python: explain with calibration data, mend, and a stored proof that is judged again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from support.linear_files import BIAS, WEIGHT, linear
from support.made_proofs import full
from torch import nn

import onnxproof
from onnxproof import Policy, Verdict

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))


def module() -> nn.Module:
    layer = nn.Linear(8, 4)
    layer.load_state_dict({"weight": torch.from_numpy(WEIGHT), "bias": torch.from_numpy(BIAS)})
    return layer.eval()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    right, wrong = tmp_path / "right.onnx", tmp_path / "wrong.onnx"
    linear(right)
    linear(wrong, bias=BIAS + 0.5)
    return right, wrong


def test_explain_names_the_node_and_the_cause(files: tuple[Path, Path]) -> None:
    proof = onnxproof.explain(module(), files[1], (X,), budget_s=60)
    assert proof.verdict is Verdict.DIVERGED and proof.location is not None
    assert proof.causes and proof.causes[0].code == "weights" and proof.causes[0].proven


def test_mend_writes_a_file_that_says_what_the_reference_says(files: tuple[Path, Path]) -> None:
    wrong = files[1]
    fixed = wrong.with_name("fixed.onnx")
    mended = onnxproof.mend(module(), wrong, fixed, (X,), budget_s=60)
    assert mended.verdict is Verdict.FAITHFUL and mended.path == fixed
    assert [cause.code for cause in mended.causes] == ["weights"]
    session = onnxruntime.InferenceSession(fixed)
    answer = session.run(None, {session.get_inputs()[0].name: X.numpy()})[0]
    np.testing.assert_allclose(answer, module()(X).detach().numpy(), rtol=1e-5)


def test_a_faithful_file_is_not_mended(files: tuple[Path, Path]) -> None:
    right, _ = files
    fixed = right.with_name("fixed.onnx")
    mended = onnxproof.mend(module(), right, fixed, (X,), budget_s=60)
    assert mended.model is None and mended.path is None and not fixed.exists()


def test_a_stricter_policy_is_told_and_a_looser_one_is_not() -> None:
    proof = replace(full(), error="")
    stricter = proof.judged(Policy(noise_limit=2.0))
    told = [finding for finding in stricter.findings if finding.code == "judged-again"]
    assert len(told) == 1 and "stricter policy" in told[0].what
    looser = stricter.judged(Policy(noise_limit=50.0))
    assert not [finding for finding in looser.findings if finding.code == "judged-again"]


@pytest.mark.parametrize(
    "change",
    [{"noise_limit": 2.0}, {"atol": 0.0}, {"drift_db": 40.0}, {"clip_limit": 0.0}],
)
def test_each_tighter_limit_is_stricter(change: dict[str, float]) -> None:
    assert Policy(**change).is_stricter_than(Policy())
    assert not Policy().is_stricter_than(Policy(**change))


def test_fewer_domains_are_not_stricter() -> None:
    assert not Policy(domains=()).is_stricter_than(Policy())
    assert Policy().is_stricter_than(Policy(domains=()))
