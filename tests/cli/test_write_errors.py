"""Every command with every kind of place that can't be written to: `error[cannot-write]`, exit code 2, nothing left, and known before the work."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from support.linear_files import BIAS, linear
from support.made_proofs import full

from onnxproof.cli import main

MODEL = """
import torch


def build():
    return torch.nn.Linear(4, 2).eval(), (torch.randn(2, 4),)
"""
COMMANDS = {
    "verify": ("verify", "a.onnx", "a.onnx", "--json"),
    "diff": ("diff", "a.onnx", "bad.onnx", "--html"),
    "explain": ("explain", "a.onnx", "bad.onnx", "--sarif"),
    "overlay": ("explain", "a.onnx", "bad.onnx", "--overlay"),
    "fix": ("explain", "a.onnx", "bad.onnx", "--fix", "-o"),
    "report": ("report", "p.json", "-o"),
    "inspect": ("inspect", "a.onnx", "--json"),
    "bench": ("bench", "a.onnx", "--seconds", "0.1", "--json"),
    "export": ("export", "model.py:build", "-o"),
    "quantize": ("quantize", "a.onnx", "--calibration", "data.npz", "-o"),
    "quantize-json": ("quantize", "a.onnx", "--calibration", "data.npz", "-o", "q.onnx", "--json"),
}
PLACES = {
    "/proc": "/proc/p",
    "no folder": "no/such/p",
    "5,000 characters": "x" * 5000,
    "a path of 5,000": "x/" * 2500 + "p",
    "a folder": "folder",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    linear(tmp_path / "a.onnx")
    linear(tmp_path / "bad.onnx", bias=BIAS + 0.5)
    (tmp_path / "model.py").write_text(MODEL)
    np.savez(tmp_path / "data.npz", x=np.ones((4, 2), np.float32))
    (tmp_path / "folder").mkdir()
    full().to_json(tmp_path / "p.json")
    return tmp_path


@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("command", list(COMMANDS))
def test_a_place_that_can_not_be_written_to(
    folder: Path, command: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_in(folder)
    path = PLACES[place] + (".html" if command == "report" and place != "a folder" else "")
    if command == "report" and place == "a folder":
        Path("folder.html").mkdir()
        path, before = "folder.html", [*before, str(folder / "folder.html")]
    assert main([*COMMANDS[command], path]) == 2
    err = capsys.readouterr().err
    assert "error[cannot-write]: " in err and "internal" not in err and len(err) < 1500
    assert files_in(folder) == sorted(before)


def files_in(folder: Path) -> list[str]:
    """All but what Python compiles of the user's module."""
    return sorted(str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts)


def run(words: Sequence[str], shell: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command under a shell that closes or redirects its streams."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "TMPDIR": str(folder / "folder"),
    }
    line = f'exec "$0" -m onnxproof.cli "$@" {shell}'
    return subprocess.run(
        ["sh", "-c", line, sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        (">&-", "error[cannot-write]: standard output is closed"),
        (">/dev/full", "error[cannot-write]: standard output or a temporary file can't"),
    ],
)
def test_standard_output_that_can_not_be_written_to(folder: Path, shell: str, words: str) -> None:
    done = run(["report", "p.json", "-o", "r.html"], shell, folder)
    assert (
        done.returncode == 2
        and words in done.stderr
        and "Traceback" not in done.stderr
        and "Exception ignored" not in done.stderr
    )
    assert not list((folder / "folder").glob("onnxproof-*"))


def test_a_closed_standard_error_or_input_changes_nothing(folder: Path) -> None:
    done = run(["inspect", "a.onnx"], "2>&- <&-", folder)
    assert done.returncode == 0 and "a.onnx" in done.stdout


def test_standard_output_named_as_a_file(folder: Path) -> None:
    """What stands in the file before stays, and what is printed around it too."""
    done = run(["inspect", "a.onnx", "--json", "/dev/stdout"], ">all.txt", folder)
    text = (folder / "all.txt").read_text()
    assert (
        done.returncode == 0
        and text.count('"path"') <= 1
        and "{" in text
        and not (folder / "all.txt").is_symlink()
    )


def test_a_reader_that_leaves_is_no_fault_of_the_reference(folder: Path) -> None:
    """As `onnxproof verify ... | head -1` does: nobody can read a message, and none is made up."""
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxproof.cli", "inspect", "a.onnx"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(60) == 2
