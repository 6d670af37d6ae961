"""A hypothesis that ends its process, through the whole of `verify`: verdict, node and the other causes come through."""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper

import onnxproof
from onnxproof.diagnosis import causes, limits
from onnxproof.diagnosis.counterfactuals.workbench import Tried
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes import ort
from onnxproof.system import guard

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="hypotheses run in this process there"
)
TRIED = ("attribute", "comparison", "weights")
"""Of the real hypotheses so many, that a test takes seconds."""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path, torch.Tensor]:
    """A module, and its file with another epsilon."""
    torch.manual_seed(0)
    module = torch.nn.LayerNorm(8, eps=1e-2)
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    weights = [
        numpy_helper.from_array(np.ones(8, np.float32), "scale"),
        numpy_helper.from_array(np.zeros(8, np.float32), "bias"),
    ]
    node = helper.make_node(
        "LayerNormalization", ["x", "scale", "bias"], ["y"], name="norm", epsilon=1e-5
    )
    graph = helper.make_graph([node], "graph", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path_factory.mktemp("wrong") / "wrong.onnx"
    onnx.save(model, path)
    return module, path, 0.1 * torch.randn(3, 8)


def divide_by_zero(workbench: Any) -> str:
    """In native code: attention over no heads."""
    x = torch.zeros(1, 2, 4)
    weights = torch.zeros(12, 4), torch.zeros(12), torch.zeros(4, 4), torch.zeros(4)
    torch._native_multi_head_attention(x, x, x, 4, 0, *weights)
    return "it came back"


def read_nothing(workbench: Any) -> str:
    ctypes.string_at(0)
    return "it came back"


def hang(workbench: Any) -> str:
    time.sleep(1000)
    return "it came back"


def eat_memory(workbench: Any) -> str:
    held = []
    while True:
        held.append(np.ones(1 << 23))


def private_bytes() -> int:
    """The private memory that this process has mapped: what the limit counts."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (held,) = (line.split()[1] for line in lines if line.startswith("VmData:"))
    return int(held) * 1024


def leave(workbench: Any) -> str:
    raise SystemExit(3)


def close_files(workbench: Any) -> str:
    os.closerange(0, 4096)
    return "closed"


def spoil_module(workbench: Any) -> str:
    """What it does to the user's module is not undone, and it dies."""
    with torch.no_grad():
        workbench.scene.reference.session.module.weight.fill_(1e6)
    os.abort()
    return "it came back"


PLANTED = {
    "divides": (divide_by_zero, "ended its process (SIGFPE)"),
    "segfaults": (read_nothing, "ended its process (SIGSEGV)"),
    "leaves": (leave, "could not be tried: SystemExit: 3"),
    "closes": (close_files, "closed its pipe"),
    "spoils": (spoil_module, "ended its process (SIGABRT)"),
}


def verify_with(
    monkeypatch: pytest.MonkeyPatch,
    wrong: tuple[torch.nn.Module, Path, torch.Tensor],
    planted: dict[str, Callable[[Any], str]],
) -> Proof:
    """The proof of the wrong file, with further hypotheses before the real ones."""
    real = causes.codes()
    hypotheses: dict[str, Any] = {
        name: SimpleNamespace(TITLE=name, PRICE=0, test=test) for name, test in planted.items()
    }
    hypotheses |= {code: real[code] for code in TRIED}
    monkeypatch.setattr(causes, "codes", lambda: hypotheses)
    monkeypatch.setattr(ort, "opened_devices", set())  # other tests may have opened one
    module, path, example = wrong
    return onnxproof.verify(module, path, (example,), budget_s=30, only=("example",))


def assert_explained(proof: Proof) -> None:
    """The planted fault is named, with all that belongs to it."""
    assert proof.verdict is Verdict.DIVERGED
    assert proof.location is not None
    assert proof.location.nodes[0] == "norm"
    assert (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True)


def test_hypotheses_that_end_their_process_take_nothing_with_them(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[torch.nn.Module, Path, torch.Tensor]
) -> None:
    proof = verify_with(monkeypatch, wrong, {name: test for name, (test, _) in PLANTED.items()})
    assert_explained(proof)
    assert proof.untried == tuple(f"{name}: {reason}" for name, (_, reason) in PLANTED.items())
    (finding,) = [finding for finding in proof.findings if finding.code == "cause-failed"]
    for name, (_, reason) in PLANTED.items():
        assert f"{name}: {reason}" in finding.what
    assert not any(finding.code == "budget-ended" for finding in proof.findings)
    assert float(wrong[0].weight.detach().max()) == 1.0


def test_one_that_hangs_leaves_time_for_the_others(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[torch.nn.Module, Path, torch.Tensor]
) -> None:
    monkeypatch.setattr(limits, "TRIAL_LEAST_S", 3.0)
    monkeypatch.setattr(limits, "TRIAL_SHARE", 0.1)
    proof = verify_with(monkeypatch, wrong, {"hangs": hang})
    assert_explained(proof)
    (told,) = proof.untried
    assert told.startswith("hangs: gave no answer within 3")


def test_one_that_eats_memory_gets_no_more(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[torch.nn.Module, Path, torch.Tensor]
) -> None:
    # The true hypothesis runs under the same limit, and needs some room.
    monkeypatch.setattr(guard, "most_bytes", lambda: private_bytes() + (1 << 30))
    proof = verify_with(monkeypatch, wrong, {"eats": eat_memory})
    assert_explained(proof)
    (told,) = proof.untried
    assert told.startswith("eats: ")
    assert "Memory" in told


def test_one_that_prints_does_not_spoil_the_output(
    monkeypatch: pytest.MonkeyPatch,
    wrong: tuple[torch.nn.Module, Path, torch.Tensor],
    capfd: pytest.CaptureFixture[str],
) -> None:
    def write(workbench: Any) -> str:
        print("a line that nobody asked for", flush=True)
        os.write(1, b"another\n")
        return "it wrote"

    proof = verify_with(monkeypatch, wrong, {"writes": write})
    assert_explained(proof)
    assert "writes: it wrote" in proof.tried
    assert "nobody asked" not in capfd.readouterr().out


def test_mending_survives_a_hypothesis_that_ends_its_process(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[torch.nn.Module, Path, torch.Tensor]
) -> None:
    """The cause has a code that no file is named after, so that all are tried again to have its graph."""
    find = causes.codes()["attribute"].test

    def find_under_other_code(workbench: Any) -> Tried:
        tried = find(workbench)
        assert isinstance(tried, Tried)
        return replace(tried, code="weight-layout")

    hypotheses = {
        "segfaults": SimpleNamespace(TITLE="dies", PRICE=0, test=read_nothing),
        "finds": SimpleNamespace(TITLE="finds", PRICE=1, test=find_under_other_code),
    }
    monkeypatch.setattr(causes, "codes", lambda: hypotheses)
    module, path, example = wrong
    mended = onnxproof.mend(module, path, None, (example,), budget_s=30)
    assert mended.verdict is Verdict.FAITHFUL
    assert mended.model is not None
    epsilon = mended.model.graph.node[0].attribute
    assert [a.f for a in epsilon if a.name == "epsilon"] == [pytest.approx(1e-2)]
