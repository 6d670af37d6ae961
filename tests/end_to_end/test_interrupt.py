"""Ctrl-C: what was measured is written and shown, and a run that was stopped is never a pass."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.linear_files import BIAS, linear

from onnxproof import api
from onnxproof.cli import main
from onnxproof.errors import Stopped
from onnxproof.results import Case, Verdict
from onnxproof.verification.observations import Observations
from onnxproof.verification.progress import Progress

AFTER = 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "a.onnx")
    linear(tmp_path / "bad.onnx", bias=BIAS + 0.5)
    return tmp_path


def stops(seen: Progress) -> None:
    """A user who has seen enough."""
    if seen.done >= AFTER:
        raise KeyboardInterrupt


def test_what_was_measured_comes_with_the_interrupt(folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt) as caught:
        api.diff("a.onnx", "a.onnx", progress=stops)
    assert isinstance(caught.value, Stopped)
    proof = caught.value.proof
    assert proof.verdict is Verdict.ERROR and not proof.passed and not proof.complete
    assert len({gap.case for gap in proof.gaps}) == AFTER
    assert f"stopped by the user after {AFTER} cases: there is no verdict" in proof.error


def test_the_command_writes_it_and_fails(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    add = Observations.add

    def add_until_stopped(self: Observations, case: Case, outcome: Any) -> float:
        stops(Progress(case="", done=len(self.sizes), elapsed=0.0, budget=1.0))
        return add(self, case, outcome)

    monkeypatch.setattr(Observations, "add", add_until_stopped)
    assert main(["diff", "a.onnx", "a.onnx", "--json", "p.json"]) == 2
    document = json.loads(Path("p.json").read_text())
    assert (
        document["verdict"] == "error" and len({gap["case"] for gap in document["gaps"]}) == AFTER
    )
    said = capfd.readouterr()
    assert said.out.startswith("ERROR") and "error[interrupted]" in said.err


def test_a_verdict_that_was_known_stands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Stopped while the cause was looked for: the cases had all been run."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("onnxproof.diagnosis.diagnose.diagnose", stopped)
    assert main(["diff", "a.onnx", "bad.onnx", "--json", "p.json", "--budget", "5"]) == 1
    assert json.loads(Path("p.json").read_text())["verdict"] == "diverged"
    assert (
        "unexplained: stopped by the user while the node and the cause were looked for"
        in capfd.readouterr().out
    )
