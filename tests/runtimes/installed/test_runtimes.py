"""Every runtime, really installed: each passes the kit, and serves the models faithfully or refuses them with a clear finding.

`make test-runtimes` installs what is missing and then skips nothing; elsewhere a runtime that isn't there is skipped with the reason.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from served_models import Served, export

from onnxproof import api, runtimes, testing
from onnxproof.errors import BackendError, BackendMissing, ModelError
from onnxproof.options import Serving
from onnxproof.results import Stage, Status, Verdict
from onnxproof.results.judging import judge_gap
from onnxproof.results.proof import Proof
from onnxproof.runtimes import ort_web

REQUIRED = os.environ.get("ONNXPROOF_RUNTIMES") == "required"
OTHER = "ort@1.23.2"
EVERYWHERE = ("ort", "ort:disabled", "reference")
RUNTIMES = (
    *EVERYWHERE,
    "openvino",
    "tract",
    "opencv",
    "ort-node",
    "ort-web",
    "ort-web:chromium",
    OTHER,
)
MODELS = ("conv", "transformer", "lstm", "unet", "qdq")
REFUSED = {("opencv", "transformer"), ("opencv", "unet"), ("opencv", "qdq"), ("opencv", "lstm")}
"""What may be refused or crash: OpenCV does not know all that torch's exporter writes."""
APPROXIMATE = {("tract", "lstm")}
"""tract's tanh is a rational function: beyond the noise where a gate saturates, by less than 2e-6."""
STEP = 0.05
ROUNDED = {
    (backend, case)
    for backend in ("openvino", "opencv")
    for case in ("constant=-0.01", "constant=0.01", "float-x-all equal")
}
"""Inputs exactly between two steps: the standard rounds them to even, these two do not, and the tool says so."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Served]:
    torch.set_num_threads(1)
    return export(tmp_path_factory.mktemp("served"))


@pytest.fixture
def models(request: pytest.FixtureRequest) -> Callable[[str], Served]:
    """A model by its name; nothing is exported before a test asks for one."""
    return lambda name: request.getfixturevalue("served")[name]  # type: ignore[no-any-return]


def there(backend: str) -> None:
    """Skip where the runtime is missing, with its reason; fail where the machine was set up to have all of them."""
    if backend in EVERYWHERE and not REQUIRED:
        pytest.skip(
            f"{backend} is tested by all the other tests; `make test-runtimes` sets it beside the others"
        )
    try:
        runtimes.require(backend)
        if backend == "ort-web:chromium" and not ort_web.browser():
            raise BackendMissing("backend-missing", "no browser")
        if backend.startswith("ort@") and not REQUIRED:
            raise BackendMissing(
                "backend-missing", "makes a virtual environment: `make test-runtimes`"
            )
    except BackendMissing as why:
        if REQUIRED:
            raise
        pytest.skip(f"{why.what}; {why.help}")


def verify(model: Served, *names: str, budget_s: float = 15.0) -> Proof:
    return api.verify(
        model.reference,
        model.path,
        model.example,
        backends=names,
        budget_s=budget_s,
        explain=False,
        serving=Serving(time_s=30, threads=1),
    )


@pytest.mark.parametrize("backend", RUNTIMES)
def test_it_passes_the_kit(backend: str, tmp_path: Path) -> None:
    there(backend)
    assert testing.conformance(backend, tmp_path) == []


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("name", MODELS)
def test_it_serves_the_model_or_refuses_it(
    backend: str, name: str, models: Callable[[str], Served]
) -> None:
    there(backend)
    try:
        proof = verify(models(name), backend)
    except (BackendError, ModelError) as why:
        assert (backend, name) in REFUSED, why.render()
        assert why.what and (why.notes or ":" in why.what), "a refusal says why"
        return
    beyond = [
        gap
        for gap in proof.gaps
        if judge_gap(gap, proof.policy) in (Verdict.DRIFT, Verdict.DIVERGED)
    ]
    if (backend, name) in REFUSED and {gap.status for gap in beyond} == {Status.REFUSED}:
        return
    if (
        name == "qdq"
    ):  # a value between two steps may go to either: one step of one element is no fault, and more is
        beyond = [gap for gap in beyond if (backend, gap.case) not in ROUNDED]
        assert all(
            gap.status is Status.COMPARED and gap.max_abs <= 1.01 * STEP for gap in beyond
        ), [(gap.case, gap.max_abs) for gap in beyond]
        assert len({gap.case for gap in beyond}) <= 2
        return
    if (backend, name) in APPROXIMATE:
        assert proof.passed and all(gap.max_abs < 2e-6 for gap in beyond)
        return
    assert proof.verdict is Verdict.FAITHFUL, (
        proof.sentence(),
        [finding.what for finding in proof.findings],
    )
    assert proof.gaps and not [finding for finding in proof.findings if finding.counts]


def test_openvino_answers_wrongly_after_an_empty_batch(models: Callable[[str], Served]) -> None:
    """A fault of the runtime that was found here: the tool names it, and keeps it away from the cases that follow."""
    there("openvino")
    proof = verify(models("conv"), "openvino", budget_s=30)
    assert "wrong-after-empty" in {finding.code for finding in proof.findings}
    assert proof.verdict is Verdict.FAITHFUL


def test_the_node_that_drops_nan_is_named_on_openvino(models: Callable[[str], Served]) -> None:
    there("openvino")
    model = models("conv")
    proof = api.verify(
        model.reference,
        model.path,
        model.example,
        backends=("openvino",),
        only=("nonfinite-image-one NaN",),
        serving=Serving(threads=1),
    )
    assert proof.location is not None and proof.location.stage is Stage.RUNTIME
    assert "relu" in proof.location.nodes[0]


def test_a_real_provider_is_proven_and_not_assumed(models: Callable[[str], Served]) -> None:
    """OpenVINO as an execution provider, in a virtual environment of its own, since its package is another onnxruntime."""
    backend = "ort@onnxruntime-openvino==1.24.1:openvino"
    there(backend)
    proof = verify(models("conv"), backend, "ort")
    assert proof.verdict is Verdict.FAITHFUL
    assert any(
        "nodes run on OpenVINO" in finding.what
        for finding in proof.findings
        if finding.code == "placement"
    )
    assert proof.cross is not None and set(proof.cross.right) == {backend, "ort"}


def test_several_runtimes_are_set_beside_each_other(models: Callable[[str], Served]) -> None:
    for backend in ("openvino", "tract"):
        there(backend)
    proof = verify(models("transformer"), "ort", "openvino", "tract", budget_s=20)
    assert (
        proof.cross is not None
        and set(proof.cross.right) == {"ort", "openvino", "tract"}
        and not proof.cross.disagree
    )
    assert {standing.verdict for standing in proof.cross.standings} == {Verdict.FAITHFUL}
