"""One bundle on every runtime, really installed: the same verdict on all of them, and on the page of `replay --serve` in Chromium."""

import os
from pathlib import Path

import pytest
import torch
from served_models import ConvNet
from support.served_pages import served

import onnxproof
from onnxproof import runtimes
from onnxproof.errors import BackendMissing
from onnxproof.results import Verdict
from onnxproof.runtimes import ort_web
from onnxproof.runtimes.javascript import node
from onnxproof.testing import adds_noise, fake_backend

REQUIRED = os.environ.get("ONNXPROOF_RUNTIMES") == "required"
TARGETS = (
    "ort",
    "ort@1.23.2",
    "openvino",
    "tract",
    "opencv",
    "ort-node",
    "ort-web",
    "ort-web:chromium",
)
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    torch.manual_seed(0)
    module, example = ConvNet().eval(), (torch.randn(2, 3, 16, 16),)
    proof = onnxproof.export(
        module, example, folder / "model.onnx", dynamic_shapes=({0: "batch"},), budget_s=4
    )
    return proof.to_bundle(folder / "model.proof")


@pytest.mark.parametrize("target", TARGETS)
def test_the_same_bundle_is_faithful_everywhere(bundle: Path, target: str) -> None:
    try:
        runtimes.require(target)
    except BackendMissing as why:
        if REQUIRED:
            raise
        pytest.skip(f"{target}: {why.help}")
    proof = onnxproof.replay(bundle, backends=(target,))
    assert proof.verdict is Verdict.FAITHFUL, proof.summary()
    assert proof.backends == (target,) and len(proof.sizes) > 10


def test_a_target_that_is_off_by_one_is_diverged_there_alone(bundle: Path) -> None:
    with fake_backend("off-by-one", adds_noise(1.0)):
        proof = onnxproof.replay(bundle, backends=("ort", "off-by-one"))
    assert proof.verdict is Verdict.DIVERGED
    assert {gap.backend for gap in proof.gaps if gap.noise_ratio > 12} == {"off-by-one"}


def test_the_page_is_faithful_in_a_real_browser_with_the_real_runtime(bundle: Path) -> None:
    if node.version("onnxruntime-web") == "" or not ort_web.browser():
        assert not REQUIRED
        pytest.skip("onnxruntime-web or a browser is missing")
    playwright = pytest.importorskip("playwright.sync_api")
    flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
    said: list[str] = []
    with playwright.sync_playwright() as driver, served(bundle, wait_s=120) as state:
        browser = driver.chromium.launch(executable_path=ort_web.browser(), args=flags)
        page = browser.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.goto(state.address)
        page.wait_for_selector("html[data-ready=yes]")
        chosen = page.locator("input[name=provider]:checked").evaluate_all(
            "boxes => boxes.map((box) => box.value)"
        )
        page.click("#start")
        page.wait_for_selector("html[data-done]", timeout=400_000)
        assert page.inner_text("#badge") == "FAITHFUL", page.inner_text("main")
        browser.close()
    assert state.proof is not None and state.proof.verdict is Verdict.FAITHFUL
    assert state.proof.backends == tuple(f"browser:{provider}" for provider in chosen)
    assert "browser:wasm" in state.proof.backends
    # the runtime itself writes there that its WebGPU kernel refuses an empty tensor; nothing else may
    errors = [text for text in said if text.startswith("error")]
    assert not [text for text in errors if "[E:onnxruntime:" not in text]
