"""The page of `replay --serve` in a real browser: it runs the cases, shows what came out, and asks no other host."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.bundles import linear_proof
from support.linear_files import BIAS, linear
from support.served_pages import Served, served, stand_in

from onnxproof.bundle import replay_measures
from onnxproof.options import BundleOptions
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="no chromium: install the package `chromium`, or set CHROMIUM to its path",
)
PATIENCE_MS = 90_000
NO_GPU = "No available adapters."
"""Chromium's own word where a page asks for WebGPU and the machine has none."""
DESKTOP = {"width": 1200, "height": 900}
PHONE = {"width": 390, "height": 844}
HAS_GPU = """
const adapter = { info: { vendor: "planted" }, features: new Set() };
Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => adapter } });
Object.defineProperty(navigator, "ml", { value: { createContext: async () => ({}) } });
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install 'onnxproof[test]'")
    with sync_api.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Proof:
    return linear_proof(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def bundle(proof: Proof) -> Path:
    """A small one: what is looked at does not depend on the number of cases."""
    path = Path(proof.candidate).parent / "model.proof"
    return proof.to_bundle(path, BundleOptions(most_mb=0.13))


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPROOF_NODE_MODULES", str(stand_in(tmp_path / "npm")))


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end: no word on the console, no error, no request to another host."""
    contexts, said, asked = [], [], []

    def go(state: Served, *, script: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        context.set_default_timeout(PATIENCE_MS)
        if script:
            context.add_init_script(script)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append((state.address, request.url)))
        page.goto(state.address)
        page.wait_for_selector("html[data-ready=yes]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert [text for text in said if text != NO_GPU] == []
    assert [url for address, url in asked if not url.startswith((address, "about:"))] == []


def run(page: Any) -> None:
    page.click("#start")
    page.wait_for_selector("html[data-done=yes]")


def test_a_right_runtime_is_faithful_on_a_desktop(bundle: Path, visit: Callable[..., Any]) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    with served(bundle) as state:
        page = visit(state, bypass_csp=True)
        assert page.is_disabled("input[value=webnn]")
        run(page)
        assert page.inner_text("#badge") == "FAITHFUL"
        assert "Confirmed by onnxproof" in page.inner_text("#confirmed")
        assert page.evaluate("document.getElementById('progress').value") == 1
        for _ in ("light", "dark"):
            assert axe.Axe().run(page).response["violations"] == []
            page.click("#theme")
    assert state.proof is not None and state.proof.verdict is Verdict.FAITHFUL
    assert len(state.proof.sizes) > 5
    assert "Chrome" in state.proof.environment["browser agent"]


def test_a_runtime_that_is_off_by_one_is_named_on_a_phone(
    bundle: Path, visit: Callable[..., Any]
) -> None:
    with served(bundle) as state:
        page = visit(state, script=HAS_GPU, viewport=PHONE)
        run(page)
        assert page.inner_text("#badge") == "DIVERGED"
        rows = page.locator("#table tbody tr").all_inner_texts()
        assert [row.split("\t")[:3] for row in rows] == [
            ["diverged", "onnxruntime can't open this model: no kernel for Gemm", "webnn"],
            ["faithful", "y", "wasm"],
            ["diverged", "y", "webgpu"],
        ]
        assert "webgpu" in page.inner_text("#worst")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    proof = state.proof
    assert proof is not None and proof.verdict is Verdict.DIVERGED
    off = {gap.backend for gap in proof.gaps if gap.noise_ratio > 12}
    assert off == {"browser:webgpu"}
    assert any("no kernel for Gemm" in finding.what for finding in proof.findings)
    assert "page-disagrees" not in {finding.code for finding in proof.findings}


def test_another_model_is_called_by_its_name_and_not_by_the_bundle_s(
    bundle: Path, visit: Callable[..., Any]
) -> None:
    other = bundle.with_name("other.onnx")
    linear(other, bias=BIAS + 0.5)
    with served(bundle, model=other, allow_other_model=True) as state:
        page = visit(state)
        assert page.inner_text("#title").startswith("other.onnx: ")
        assert "not the file that it was made for, which is model.onnx" in page.inner_text("#facts")
        run(page)
        assert "other.onnx on wasm" in page.inner_text("#verdict")
    assert state.proof is not None
    assert f"--model {other} --allow-other-model --case" in state.proof.replay


def test_a_page_that_is_closed_ends_the_replay(bundle: Path, visit: Callable[..., Any]) -> None:
    slow = "const own = fetch; globalThis.fetch = async (path, options) => { if (`${path}`.startsWith('answer')) await new Promise(() => {}); return own(path, options); };"
    with served(bundle) as state:
        page = visit(state, script=slow)
        page.click("#start")
        while not page.inner_text("#state").startswith("1 of"):
            page.wait_for_timeout(50)
        page.goto("about:blank")
    assert "the page was closed" in str(state.error)


def test_nothing_in_a_bundle_becomes_markup(
    proof: Proof, tmp_path: Path, visit: Callable[..., Any]
) -> None:
    name = "<img src=x onerror=alert(1)>.onnx"
    shutil.copy(proof.candidate, tmp_path / name)
    renamed = replace(proof, candidate=str(tmp_path / name))
    bundle = renamed.to_bundle(tmp_path / "odd.proof", BundleOptions(most_mb=0.13))
    with served(bundle, only=("example",)) as state:
        page = visit(state)
        assert name in page.inner_text("h1")
        run(page)
        assert page.locator("img").count() == 0


MEASURE = """
async (rows) => {
  const { measure, judgeGap } = await import(new URL("page/measures.mjs", location.href));
  const { readTensors } = await import(new URL("page/arrays.mjs", location.href));
  const policy = { noise_limit: 12, worst_limit: 24, atol: 1e-4, rtol: 1e-3, strict_domains: false };
  return rows.map(({ file, noise, scale }) => {
    const { output, ...answer } = readTensors(Uint8Array.from(atob(file), (c) => c.charCodeAt(0)).buffer, {});
    const gap = { domain: null, void: null, ...measure({}, answer, output, noise, scale) };
    const text = (value) => (typeof value === "number" ? String(value) : value);
    const names = ["status", "compared", "lost", "odd", "noise_ratio", "worst_ratio", "max_abs", "mismatches", "unstable"];
    return [judgeGap(gap, policy), ...names.map((name) => text(gap[name] ?? 0))];
  });
}
"""


def _row(rng: np.random.Generator) -> tuple[dict[str, Any], list[Any]]:
    """Random tensors with planted differences, and what Python measures of them."""
    import base64

    from safetensors.numpy import save

    dtype = rng.choice(["float16", "float32", "float64", "int64", "int32", "bool", "uint8"])
    shape = tuple(int(size) for size in rng.integers(0, 4, rng.integers(0, 4)))
    scale = 10.0 ** rng.integers(-6, 5)
    truth = np.asarray(rng.standard_normal(shape) * scale)
    with np.errstate(all="ignore"):
        reference = np.asarray(truth.astype(dtype))
        error = rng.choice([0, 1e-7, 1e-3, 1.0]) * scale
        output = np.asarray((truth + rng.standard_normal(shape) * error).astype(dtype))
    if reference.dtype.kind == "f" and reference.size:
        odd = [np.nan, np.inf, -np.inf, -0.0]
        for array in (reference, output):
            flat = array.reshape(-1)
            flat[rng.integers(0, array.size)] = rng.choice([*odd, 1.0])
    else:
        truth = reference
    answer = {"reference": reference, "truth": np.asarray(truth, np.float64), "output": output}
    if reference.dtype.kind != "f":
        del answer["truth"]
        answer["unstable"] = rng.random(reference.size) < 0.5
    level = float(rng.choice([0.0, 1e-7 * scale]))
    noise = {
        "kind": "float64",
        "rms": level,
        "worst": 3 * level,
        "flips": float(rng.integers(0, 2)),
    }
    row = {"file": base64.b64encode(save(answer)).decode(), "noise": noise, "scale": 0.0}
    given = {"truth": None, "unstable": None, **answer}
    gap = replay_measures.measure({}, given, output, noise, 0.0)
    policy = {"noise_limit": 12, "worst_limit": 24, "atol": 1e-4, "rtol": 1e-3}
    verdict = replay_measures.judge_gap(gap, policy | {"strict_domains": False})
    names = ("status", "compared", "lost", "odd", "noise_ratio", "worst_ratio", "max_abs")
    names += ("mismatches", "unstable")
    return row, [verdict, *(gap.get(name, 0) for name in names)]


def test_javascript_measures_and_judges_what_python_does(
    bundle: Path, visit: Callable[..., Any]
) -> None:
    rng = np.random.default_rng(5)
    rows, expected = zip(*(_row(rng) for _ in range(400)), strict=True)
    with served(bundle) as state:
        page = visit(state)
        measured = page.evaluate(MEASURE, list(rows))
        state.post("start", {"providers": ["wasm"]})
        state.post("failed", {"what": "the test has what it wanted"})
    assert {row[0] for row in expected} == {"faithful", "drift", "diverged", "vacuous"}
    for row, own in zip(measured, expected, strict=True):
        assert row[:2] == own[:2]
        numbers = [float(value.replace("Infinity", "inf")) for value in row[2:]]
        assert numbers == pytest.approx(own[2:], rel=1e-9)
