"""Every runtime, really installed: each passes the kit, and serves the models faithfully or refuses them with a clear finding.

`make test-runtimes` installs what is missing and then skips nothing; elsewhere a runtime that isn't there is skipped with the reason.
"""

import os
from pathlib import Path

import pytest
import torch
from served_models import Served, export

from onnxproof import backends, prove, testing
from onnxproof.backends import ort_web
from onnxproof.errors import BackendError, BackendMissing, ModelError
from onnxproof.judge import judge_gap
from onnxproof.proof import Proof
from onnxproof.types import Serving, Stage, Status, Verdict

REQUIRED = os.environ.get("ONNXPROOF_RUNTIMES") == "required"
OTHER = "ort@1.23.2"
RUNTIMES = ("ort", "ort:disabled", "reference", "openvino", "tract", "opencv", "ort-node", "ort-web", "ort-web:chromium", OTHER)
MODELS = ("conv", "transformer", "lstm", "unet", "qdq")
REFUSED = {("opencv", "transformer"), ("opencv", "unet"), ("opencv", "qdq"), ("opencv", "lstm")}
"""What may be refused or crash: OpenCV does not know all that torch's exporter writes."""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Served]:
    torch.set_num_threads(1)
    return export(tmp_path_factory.mktemp("served"))


def there(backend: str) -> None:
    """Skip where the runtime is missing, with its reason; fail where the machine was set up to have all of them."""
    try:
        backends.require(backend)
        if backend == "ort-web:chromium" and not ort_web.browser():
            raise BackendMissing("backend-missing", "no browser")
        if backend.startswith("ort@") and not REQUIRED:
            raise BackendMissing("backend-missing", "makes a virtual environment: `make test-runtimes`")
    except BackendMissing as why:
        if REQUIRED:
            raise
        pytest.skip(f"{why.what}; {why.help}")


def verify(model: Served, *names: str, budget_s: float = 12.0) -> Proof:
    return prove.verify(model.reference, model.path, model.example, backends=names, budget_s=budget_s, explain=False, serving=Serving(time_s=30, threads=1))


@pytest.mark.parametrize("backend", RUNTIMES)
def test_it_passes_the_kit(backend: str, tmp_path: Path) -> None:
    there(backend)
    assert testing.conformance(backend, tmp_path) == []


@pytest.mark.parametrize("backend", RUNTIMES)
@pytest.mark.parametrize("name", MODELS)
def test_it_serves_the_model_or_refuses_it(backend: str, name: str, served: dict[str, Served]) -> None:
    there(backend)
    try:
        proof = verify(served[name], backend)
    except (BackendError, ModelError) as why:
        assert (backend, name) in REFUSED, why.render()
        assert why.what and (why.notes or ":" in why.what), "a refusal says why"
        return
    if (backend, name) in REFUSED and proof.verdict is Verdict.DIVERGED:
        assert {gap.status for gap in proof.gaps if judge_gap(gap, proof.policy) is Verdict.DIVERGED} == {Status.REFUSED}
        return
    assert proof.verdict is Verdict.FAITHFUL, (proof.sentence(), [finding.what for finding in proof.findings])
    assert proof.gaps and not [finding for finding in proof.findings if finding.counts]
