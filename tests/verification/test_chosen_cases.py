"""Cases that are asked for by name: sizes that the plan lacks, names that no case has, and the line that replays one."""

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from onnxproof import api
from onnxproof.cli import main
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

BUILD = """
import torch
def build():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 2).eval(), (torch.randn(3, 4),)
"""


def linear() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 2).eval()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`fixed.onnx` takes three rows, `open.onnx` any number."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "model.py").write_text(BUILD)
    x = torch.randn(3, 4)
    names = {"input_names": ["input"], "dynamo": False}
    torch.onnx.export(linear(), (x,), folder / "fixed.onnx", **names)
    axes = {"input": {0: "batch"}}
    torch.onnx.export(linear(), (x,), folder / "open.onnx", dynamic_axes=axes, **names)
    return folder


def verify(path: Path, *names: str) -> Proof:
    return api.verify(linear(), path, (torch.randn(3, 4),), only=names)


def test_a_size_that_the_plan_lacks_is_made(files: Path) -> None:
    proof = verify(files / "open.onnx", "batch=128", "batch=3")
    assert proof.verdict is Verdict.FAITHFUL
    assert {gap.case for gap in proof.gaps} == {"batch=128", "batch=3"}
    assert proof.sizes["batch=128"] == {"batch": 128}


def test_a_name_that_no_case_has_proves_nothing_and_the_nearest_are_offered(files: Path) -> None:
    proof = verify(files / "open.onnx", "ordnary-1")
    assert proof.verdict is Verdict.VACUOUS
    assert proof.sentence() == "nothing is proven: there is no case `ordnary-1`"
    (finding,) = [finding for finding in proof.findings if finding.code == "no-such-case"]
    assert "`ordinary-1`" in finding.help


@pytest.mark.parametrize("name", ["batch=0", "batch=x", "rows=4", "batch=4000000000"])
def test_a_size_that_cannot_be_is_no_case(files: Path, name: str) -> None:
    assert verify(files / "open.onnx", name).verdict is Verdict.VACUOUS


def test_an_unknown_name_beside_a_known_one_fails_the_run(files: Path) -> None:
    proof = verify(files / "open.onnx", "example", "exampel")
    assert proof.verdict is Verdict.FAITHFUL and not proof.passed


def test_a_batch_that_the_file_fixed_and_the_module_did_not_is_told(files: Path) -> None:
    proof = api.verify(linear(), files / "fixed.onnx", (torch.randn(3, 4),))
    (finding,) = [finding for finding in proof.findings if finding.code == "batch-fixed"]
    assert finding.what.startswith("the file takes batches of 3 only (dim 0 of `input`)")
    assert proof.verdict is Verdict.FAITHFUL


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(0, keepdim=True) + x


class Three(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(3, 2, 2).sum(1)


@pytest.mark.parametrize("module", [Mean(), Three()], ids=["mixes its rows", "takes three"])
def test_a_first_dim_that_is_no_batch_is_not_told(module: nn.Module, tmp_path: Path) -> None:
    x = torch.randn(3, 4)
    torch.onnx.export(module, (x,), tmp_path / "m.onnx", dynamo=False)
    proof = api.verify(module, tmp_path / "m.onnx", (x,), budget_s=5)
    assert "batch-fixed" not in {finding.code for finding in proof.findings}


@pytest.mark.parametrize("given", ["--dynamic", "--data"])
def test_the_line_that_replays_a_case_has_the_options_that_make_it(
    files: Path,
    given: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A size that the file refuses, and rows of which one is too large for it."""
    monkeypatch.chdir(files)
    options = ["--dynamic", "input:0=batch"]
    if given == "--data":
        np.savez("rows.npz", input=np.full((7, 4), 1e30, dtype=np.float32))
        options = ["--data", "rows.npz", "--case", "data-rows.npz"]
    path = "fixed.onnx" if given == "--dynamic" else "open.onnx"
    code = main(["verify", "model.py:build", path, "--no-explain", *options])
    replay = capfd.readouterr().out.splitlines()[-1].strip()
    assert given in replay
    assert main([*shlex.split(replay)[1:], "--no-explain"]) == code
