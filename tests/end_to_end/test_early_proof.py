"""The verdict is safe before explaining begins: a hypothesis that ends the process takes the explanation alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.linear_files import BIAS, linear

from onnxproof import api
from onnxproof.cli import main
from onnxproof.results import Verdict
from onnxproof.verification.progress import Progress

CAUSE = '''"""Ends the process."""
import ctypes, os, signal
TITLE, PRICE = "ends the process", -1
def test(bench):
    {deed}
'''
DEEDS = {
    "SIGABRT": "os.abort()",
    "SIGFPE": "os.kill(os.getpid(), signal.SIGFPE)",
    "SIGSEGV": "ctypes.string_at(0)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "a.onnx")
    linear(tmp_path / "bad.onnx", bias=BIAS + 0.5)
    return tmp_path


def plant(folder: Path, *names: str) -> None:
    """Causes from another package, as entry points name them: each ends its process by one signal."""
    info = folder / "ending-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ending\nVersion: 1.0\n")
    lines = [f"{name} = ending_{name}" for name in names]
    (info / "entry_points.txt").write_text("\n".join(["[onnxproof.causes]", *lines]))
    for name in names:
        (folder / f"ending_{name}.py").write_text(CAUSE.format(deed=DEEDS[name]))


@pytest.mark.parametrize(
    ("names", "quiet"), [(("SIGABRT", "SIGSEGV"), ()), (("SIGFPE", "SIGKILL"), ("-q",))]
)
def test_causes_that_end_their_process_take_nothing_with_them(
    folder: Path, names: tuple[str, ...], quiet: tuple[str, ...]
) -> None:
    """One case is enough, and leaves the time to explaining, also on a busy machine."""
    plant(folder, *names)
    words = ["diff", "a.onnx", "bad.onnx", "--case", "scale-0.1", "--budget", "60", *quiet]
    files = ["--json", "p.json", "--junit", "p.xml", "--html", "p.html"]
    paths = os.pathsep.join([str(folder), *(p for p in sys.path if p)])
    done = subprocess.run(
        [sys.executable, "-m", "onnxproof.cli", *words, *files],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads((folder / "p.json").read_text())
    assert document["verdict"] == "diverged" and document["gaps"] and document["replay"]
    for name in names:
        assert f"{name}: ended its process ({name})" in document["untried"]
    assert not any(finding["code"] == "explaining" for finding in document["findings"])
    assert "onnxproof: DIVERGED  bad.onnx differs from a.onnx" in done.stderr
    assert (folder / "p.html").read_text().rstrip().endswith("</html>") and "failure" in (
        folder / "p.xml"
    ).read_text()


def test_the_finished_proof_takes_its_place(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", "a.onnx", "bad.onnx", "--budget", "60", "--json", "p.json"]) == 1
    document = json.loads(Path("p.json").read_text())
    assert document["location"] and "explaining" not in {
        finding["code"] for finding in document["findings"]
    }
    assert capfd.readouterr().err.count("onnxproof: DIVERGED") == 1


def test_standard_output_and_pipes_get_the_finished_proof_alone(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "diff",
                "a.onnx",
                "bad.onnx",
                "--budget",
                "60",
                "--json",
                "-",
                "--markdown",
                "/dev/null",
            ]
        )
        == 1
    )
    document = json.loads(capfd.readouterr().out)
    assert document["location"] and "explaining" not in {
        finding["code"] for finding in document["findings"]
    }


def test_nothing_is_told_early_where_nothing_is_explained(folder: Path) -> None:
    early = []
    api.diff(
        "a.onnx",
        "bad.onnx",
        budget_s=60,
        explain=False,
        progress=lambda state: early.append(state.proof),
    )
    api.diff(
        "a.onnx",
        "a.onnx",
        budget_s=60,
        only=("example",),
        progress=lambda state: early.append(state.proof),
    )
    assert set(early) == {None}


def test_the_early_proof_has_the_verdict_and_every_gap(folder: Path) -> None:
    early = []

    def keep(state: Progress) -> None:
        if state.proof is not None:
            early.append(state.proof)

    proof = api.diff("a.onnx", "bad.onnx", budget_s=60, progress=keep)
    assert len(early) == 1 and early[0].verdict is proof.verdict is Verdict.DIVERGED
    assert early[0].gaps == proof.gaps and early[0].location is None and proof.location is not None


def test_an_export_is_told_with_its_record(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    import onnxproof

    def bent(x: "torch.Tensor") -> "torch.Tensor":
        return torch.tanh(x) + (1.0 if torch.compiler.is_compiling() else 0.0)

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            return bent(x)

    early = []
    proof = onnxproof.export(
        Model(),
        (torch.randn(2, 3),),
        folder / "m.onnx",
        budget_s=60,
        progress=lambda state: early.append(state.proof),
    )
    told = [state for state in early if state is not None]
    assert proof.verdict is Verdict.DIVERGED and len(told) == 1 and told[0].export == proof.export
