"""The server of `replay --serve` without a browser: who may fetch what, what is refused, and whose verdict counts."""

import json
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.bundles import linear_proof
from support.served_pages import Served, packed, served, stand_in

from onnxproof.bundle import browser_answers
from onnxproof.bundle.browser_answers import BadAnswer
from onnxproof.bundle.manifest import BundleError
from onnxproof.bundle.read import open_bundle
from onnxproof.cli import main
from onnxproof.errors import BackendMissing, ModelError
from onnxproof.results import Verdict

START = {"providers": ["wasm"], "about": {"agent": "a test"}}
ONE = {"only": ("example",)}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    return linear_proof(folder).to_bundle(folder / "model.proof")


@pytest.fixture(autouse=True)
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNXPROOF_NODE_MODULES", str(stand_in(tmp_path / "npm")))


def right_answer(bundle: Path, name: str = "example") -> np.ndarray:
    with open_bundle(bundle) as opened:
        (case,) = opened.cases([name])
    return case.outputs[0].reference


def finish(state: Served, verdict: str) -> dict[str, object]:
    status, answer = state.post("done", {"verdict": verdict})
    assert status == 200
    return answer


def test_the_answers_are_judged_here_and_the_proof_names_the_browser(bundle: Path) -> None:
    with served(bundle, **ONE) as state:
        assert state.post("start", START) == (200, {})
        assert state.ask("POST", "answer/wasm", packed(right_answer(bundle)))[0] == 200
        assert finish(state, "faithful")["verdict"] == "faithful"
    assert state.proof is not None, state.error
    assert state.proof.verdict is Verdict.FAITHFUL
    assert state.proof.backends == ("browser:wasm",)
    assert state.proof.environment["browser agent"] == "a test"
    assert state.proof.environment["onnxruntime-web"] == "0.0.1"
    assert state.proof.replay.endswith("--case 'example' --serve")


def test_a_page_that_lies_is_not_believed(bundle: Path) -> None:
    with served(bundle, **ONE) as state:
        state.post("start", START)
        state.ask("POST", "answer/wasm", packed(right_answer(bundle) + 1))
        assert finish(state, "faithful")["verdict"] == "diverged"
    assert state.proof is not None and state.proof.verdict is Verdict.DIVERGED
    told = {finding.code: finding.what for finding in state.proof.findings}
    assert told["page-disagrees"].startswith("the page judged faithful, and its answers")


def test_a_refused_call_is_diverged_and_a_model_that_cannot_be_opened_counts(bundle: Path) -> None:
    refusal = json.dumps({"error": "no kernel"}).encode()
    with served(bundle, **ONE) as state:
        start = {"providers": ["wasm", "webgpu"], "failed": {"webgpu": "no shader-f16"}}
        state.post("start", start)
        state.ask("POST", "answer/wasm", struct.pack("<Q", len(refusal)) + refusal)
        finish(state, "diverged")
    assert state.proof is not None and state.proof.verdict is Verdict.DIVERGED
    assert state.proof.gaps[0].detail.endswith("no kernel")
    assert any("no shader-f16" in finding.what for finding in state.proof.findings)
    with served(bundle, **ONE) as state:
        state.post("start", {"providers": ["webgpu"], "failed": {"webgpu": "no shader-f16"}})
        assert finish(state, "diverged") == {"error": "no shader-f16"}
    assert isinstance(state.error, ModelError)


def test_only_known_names_below_the_token_are_served(bundle: Path) -> None:
    with served(bundle, wait_s=2.0) as state:
        for name in ("", "manifest.json", "cases/000.safetensors", "model/0", "settings.json"):
            assert state.ask("GET", name)[0] == 200, name
        assert state.ask("GET", "runtime/ort.wasm.min.mjs")[0] == 200
        refused = (
            "../manifest.json",
            "runtime/../secret.txt",
            "runtime/../package.json",
            "runtime/%2e%2e/secret.txt",
            "runtime/ort.none.mjs",
            "model/1",
            "model/../model.onnx",
            "page/../replay.py",
            "proof.json",
            "/etc/passwd",
            "cases/999.safetensors",
        )
        for name in refused:
            assert state.ask("GET", name)[0] == 404, name
        for path in ("/", "/manifest.json", "/wrong-token/manifest.json", "//manifest.json"):
            assert state.ask_path("GET", path)[0] == 404, path
        assert state.ask_path("POST", "/wrong-token/start", b"{}")[0] == 404
        assert state.ask("POST", "manifest.json", b"{}")[0] == 404
    assert isinstance(state.error, BundleError) and state.error.code == "no-visitor"


def test_sizes_are_limited_and_an_address_is_used_once(bundle: Path) -> None:
    with served(bundle, **ONE) as state:
        assert state.ask("POST", "start", **{"Content-Length": str(1 << 17)})[0] == 413
        assert state.ask("POST", "start", **{"Content-Length": "x"})[0] == 411
        assert state.ask("POST", "start", b"[]")[0] == 400
        assert state.ask("POST", "start", b"[" * 60_000)[0] == 400
        assert state.post("start", {"providers": ["cuda"]})[0] == 400
        assert state.ask("POST", "answer/wasm", b"")[0] == 409
        assert state.post("start", START)[0] == 200
        assert state.post("start", START) == (409, {"error": "this address was used already"})
        assert state.ask("POST", "answer/webgpu", packed(right_answer(bundle)))[0] == 409
        assert state.ask("POST", "answer/wasm", **{"Content-Length": str(5 << 20)})[0] == 413
        assert state.ask("POST", "answer/wasm", packed(right_answer(bundle)))[0] == 200
        assert state.ask("POST", "answer/wasm", packed(right_answer(bundle)))[0] == 409
        finish(state, "")
    assert state.proof is not None and state.proof.verdict is Verdict.FAITHFUL


@pytest.mark.parametrize(
    "body",
    [
        b"short",
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{}",
        packed(np.zeros(3, np.float32))[:-1],
        packed(np.zeros(3, np.complex64)),
        packed(np.zeros(1, np.float32), np.zeros(1, np.float32)),
    ],
)
def test_what_is_no_answer_ends_the_replay(bundle: Path, body: bytes) -> None:
    with served(bundle, **ONE) as state:
        state.post("start", START)
        assert state.ask("POST", "answer/wasm", body)[0] == 409
    assert isinstance(state.error, BundleError) and state.error.code == "page-failed"


def test_a_page_that_is_closed_or_silent_ends_the_replay(bundle: Path) -> None:
    with served(bundle, **ONE) as state:
        state.post("start", START)
        assert state.post("failed", {"what": "the page was closed"})[0] == 200
    assert "the page was closed" in str(state.error)
    with served(bundle, time_s=0.3, **ONE) as state:
        state.post("start", START)
    assert isinstance(state.error, BundleError) and state.error.code == "page-gone"


SHAPES = st.lists(st.integers(-1, 4), max_size=3)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    SHAPES, st.sampled_from(["float32", "int64", "object", "S3"]), st.integers(-4, 80), st.binary()
)
def test_no_header_reads_beyond_its_bytes(
    shape: list[int], dtype: str, offset: int, data: bytes
) -> None:
    about = {"dtype": dtype, "shape": shape, "offset": offset, "bytes": len(data)}
    header = json.dumps({"outputs": [about]}).encode()
    body = struct.pack("<Q", len(header)) + header + data
    try:
        answer = browser_answers.parse(body, 1)
    except BadAnswer:
        return
    (array,) = answer.outputs
    assert array is not None and array.tobytes() == data[offset : offset + len(data)]
    assert array.shape == tuple(shape)


def test_the_words_of_the_command_line(
    bundle: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = str(bundle)
    assert main(["replay", path, "127.0.0.1:8000"]) == 2
    assert (
        "error[usage]: an address to listen at was given without `--serve`"
        in capfd.readouterr().err
    )
    assert main(["replay", path, "--serve", "--backend", "ort"]) == 2
    assert "chosen on the page" in capfd.readouterr().err
    assert main(["replay", path, "--serve", "a b:1"]) == 2
    assert "error[bad-address]" in capfd.readouterr().err
    assert main(["replay", path, "--serve", "203.0.113.7:1"]) == 2
    assert "error[cannot-listen]" in capfd.readouterr().err
    assert main(["replay", path, "--serve", "--wait", "0.1", "--host", "0.0.0.0"]) == 2
    told = capfd.readouterr().err
    assert "can fetch the model and the bundle" in told and "adb reverse tcp:" in told
    assert "error[no-visitor]: nobody started the replay within 0.1 s" in told
    assert "█" in told or "▀" in told
    monkeypatch.setenv("ONNXPROOF_NODE_MODULES", str(tmp_path / "none"))
    monkeypatch.setenv("ONNXPROOF_CACHE", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("onnxproof.runtimes.javascript.node.global_packages", lambda: None)
    assert main(["replay", path, "--serve"]) == 2
    assert "npm install" in capfd.readouterr().err


def test_the_command_writes_the_proof_and_ends_by_itself(bundle: Path, tmp_path: Path) -> None:
    words = ["replay", str(bundle), "--serve", "--case", "example", "--json", "served.json"]
    done = subprocess.Popen(
        [sys.executable, "-m", "onnxproof", *words],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert done.stderr is not None
        said = re.search(r"open (http://127\.0\.0\.1:\d+/\S+/)", done.stderr.readline())
        assert said is not None
        state = Served(address=said[1])
        state.post("start", START)
        state.ask("POST", "answer/wasm", packed(right_answer(bundle) + 1))
        finish(state, "diverged")
        assert done.wait(60) == 1
    finally:
        done.kill()
        done.communicate()
    assert json.loads((tmp_path / "served.json").read_text())["verdict"] == "diverged"


def test_a_missing_package_is_told_before_anybody_waits(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxproof.runtimes.javascript.node._find", lambda package: None)
    with served(bundle) as state:
        pass
    assert isinstance(state.error, BackendMissing)
    assert threading.active_count() < 20
