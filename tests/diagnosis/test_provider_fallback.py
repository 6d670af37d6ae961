"""The cause `provider-fallback`: refused by the runtime's own record, or shown by what the CPU alone answers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.planted_faults import told

from onnxproof import diff
from onnxproof.options import Serving
from onnxproof.results import Verdict
from onnxproof.runtimes import Session
from onnxproof.testing import _models, fake_backend

BUDGET_S = 60.0
FORGIVEN = Serving(allow_fallback=True)
Array = np.ndarray[Any, Any]


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return _models.linear_model(tmp_path)[0]


def off(session: Session, inputs: Mapping[str, Array]) -> list[Array | None]:
    """As a provider that computes in a narrower type than it was given."""
    with np.errstate(over="ignore"):
        return [
            None if output is None else output.astype(np.float16).astype(np.float32)
            for output in session.run(inputs)
        ]


def test_a_fallback_that_is_refused_is_the_cause(linear: Path) -> None:
    """Azure is in every build of onnxruntime and runs nothing: a real session that falls back silently."""
    proof = diff(linear, linear, backends=("ort:azure", "ort"), budget_s=BUDGET_S)
    assert proof.verdict is Verdict.DIVERGED
    (cause,) = proof.causes
    assert (cause.code, cause.proven) == ("provider-fallback", True)
    assert (
        "Azure took none of the model's 2 nodes" in cause.evidence
        and "(Gemm) on CPU" in cause.evidence
    )


def test_answers_that_only_the_provider_gets_wrong_are_its_own(linear: Path) -> None:
    with fake_backend("gpu", off, inner="ort:azure"):
        proof = diff(linear, linear, backends=("gpu",), budget_s=BUDGET_S, serving=FORGIVEN)
    assert proof.verdict is not Verdict.FAITHFUL
    cause = proof.causes[0]
    assert (cause.code, cause.proven) == ("provider-fallback", True), told(proof)
    assert (
        "; the same file on the CPU alone is right on " in cause.evidence
        and "(Gemm) on CPU" in cause.evidence
    )
    assert cause.before > 100 > cause.after


@pytest.mark.parametrize("provider", ["azure", "cuda"])
def test_a_fault_of_the_file_is_not_blamed_on_where_it_ran(
    linear: Path, provider: str, tmp_path: Path
) -> None:
    loaded = onnx.load(linear)
    weight = next(t for t in loaded.graph.initializer if len(t.dims) == 2)
    weight.CopyFrom(
        onnx.numpy_helper.from_array(
            onnx.numpy_helper.to_array(weight) * np.float32(1.1), weight.name
        )
    )
    onnx.save(loaded, tmp_path / "other.onnx")
    proof = diff(
        linear,
        tmp_path / "other.onnx",
        backends=(f"ort:{provider}",),
        budget_s=BUDGET_S,
        serving=FORGIVEN,
    )
    assert proof.verdict is Verdict.DIVERGED and "provider-fallback" in {
        finding.code for finding in proof.findings
    }
    assert "provider-fallback" not in {cause.code for cause in proof.causes}, told(proof)
    assert any(
        words.startswith("provider-fallback: the CPU alone differs, too") for words in proof.tried
    ), proof.tried


def test_where_no_provider_was_asked_for_it_does_not_apply(linear: Path) -> None:
    with fake_backend("plain", off):
        proof = diff(linear, linear, backends=("plain",), budget_s=BUDGET_S)
    assert "provider-fallback: no other provider was asked for" in proof.tried
