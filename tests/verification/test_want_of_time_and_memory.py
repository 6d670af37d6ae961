"""What time or memory left out takes the FAITHFUL away, and says so."""

import time
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import onnxproof
from bench.corpus import export
from onnxproof.errors import Refused
from onnxproof.reference import float64
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes.reference import ReferenceSession
from onnxproof.verification import search

X = torch.randn(4, 16, generator=torch.Generator().manual_seed(3))


def net() -> nn.Module:
    torch.manual_seed(5)
    layers = [nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8)]
    return nn.Sequential(*layers).eval()


def verify(module: nn.Module, path: Path, **options: Any) -> Proof:
    options = {"budget_s": 20.0, "explain": False, **options}
    return onnxproof.verify(module, path, (X,), dynamic_shapes=({0: "batch"},), **options)


def codes(proof: Proof) -> set[str]:
    return {finding.code for finding in proof.findings}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "net.onnx"
    return export(net(), (X,), path, ({0: "batch"},))


def wrong_epsilon(source: Path, path: Path, factor: float) -> Path:
    model = onnx.load(source)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "epsilon":
                attribute.f *= factor
    onnx.save(model, path)
    return path


def test_without_memory_for_the_truth_nothing_is_proven(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Any, inputs: Any) -> Any:
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes")

    monkeypatch.setattr(float64.TruthSession, "run", run)
    proof = verify(net(), exported, budget_s=2.0)
    assert proof.verdict is Verdict.VACUOUS
    assert "truth-out-of-memory" in codes(proof)


def test_a_truth_that_goes_layer_by_layer_for_want_of_memory_is_told(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxproof.reference.lazy_float64.AT_ONCE", 1000)
    monkeypatch.setattr("onnxproof.system.guard.available_bytes", lambda: 2000)
    proof = verify(net(), exported)
    assert proof.verdict is Verdict.FAITHFUL
    assert "truth-by-layer" in codes(proof)


@pytest.mark.parametrize(
    ("code", "verdict"), [("too-slow", Verdict.VACUOUS), ("unevaluated", Verdict.FAITHFUL)]
)
def test_a_doubt_that_the_graph_had_no_time_to_settle(
    code: str, verdict: Verdict, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Any, inputs: Any) -> Any:
        raise Refused(code, "no answer")

    monkeypatch.setattr(search, "_DOUBTFUL", 0.0)
    monkeypatch.setattr(ReferenceSession, "run", run)
    proof = verify(net(), exported)
    assert proof.verdict is verdict
    assert "graph-not-asked" in codes(proof)


@pytest.mark.parametrize("budget_s", [0.5, 4.0])
@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_a_tenth_of_the_speed_never_makes_a_faithful_file_of_a_wrong_one(
    factor: float,
    budget_s: float,
    exported: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = wrong_epsilon(exported, tmp_path / "wrong.onnx", factor)
    fast = verify(net(), path)
    assert (fast.verdict is Verdict.FAITHFUL) == (factor == 1.0)
    real, begun = time.perf_counter, time.perf_counter()
    monkeypatch.setattr(time, "perf_counter", lambda: begun + 10 * (real() - begun))
    slow = verify(net(), path, budget_s=budget_s)
    if factor == 1.0:
        assert slow.verdict in (Verdict.FAITHFUL, Verdict.VACUOUS)
    else:  # the cases that show it beyond the tolerance may not have been reached
        assert slow.verdict in (Verdict.DIVERGED, Verdict.DRIFT, Verdict.VACUOUS)
