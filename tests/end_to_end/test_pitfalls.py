"""Pitfalls in which torch.onnx.export itself, called as everybody calls it, writes a wrong file and says nothing.

The others stand where their cure is tested: fixed sizes and frozen branches in test_export_dims.py, training mode in test_export.py, preprocessing in test_export_choices.py.
Should a newer torch mend one of these, the first assertion says so.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.exporter.export import quiet
from onnxproof.results import Verdict

BUDGET_S = 1.5


class Divided(nn.Module):
    """An operator that ONNX has, with a setting that it lacks."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 2, divisor_override=3)


class Averaged(nn.Module):
    """An operator that ONNX lacks one reduction of."""

    def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return torch.zeros(x.shape[0], 4).scatter_reduce(1, place, x, "mean", include_self=False)


class Clock(nn.Module):
    """Seconds since 1970 need more than the 24 bits of a float32, and the constant is written in them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full((x.shape[0], 1), 1.7e9 + 0.25, dtype=torch.float64) + x.double() - 1.7e9


class Unlikely(nn.Module):
    """float64 asked for where float32 rounds a probability up to one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(1 - x.softmax(-1, dtype=torch.float64))


PLACES = torch.tensor([[0, 0, 1, 1, 2, 3], [3, 2, 1, 0, 0, 0]])
CASES = [
    pytest.param(Divided(), (torch.rand(1, 2, 6, 6),), 0.05, id="unsupported-setting"),
    pytest.param(Averaged(), (torch.rand(2, 6), PLACES), 0.05, id="outputs-never-tested"),
    pytest.param(Clock(), (torch.rand(2, 3),), 0.2, id="float64-constant"),
    pytest.param(Unlikely(), (torch.tensor([[20.0, 0, 0], [1, 2, 3]]),), 1.0, id="float64-softmax"),
]


@pytest.mark.parametrize(("module", "inputs", "off"), CASES)
def test_the_naive_file_is_wrong_in_silence_and_ours_is_not_let_pass(
    module: nn.Module, inputs: tuple[Any, ...], off: float, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    with quiet():
        torch.onnx.export(module, inputs, tmp_path / "naive.onnx", dynamo=True, external_data=False)
    session = onnxruntime.InferenceSession(tmp_path / "naive.onnx")
    found = session.run(
        None,
        {
            port.name: array.numpy()
            for port, array in zip(session.get_inputs(), inputs, strict=True)
        },
    )[0]
    wanted = module(*inputs).numpy()
    assert (
        found.shape == wanted.shape and np.abs(found - wanted).max() > off
    )  # runs, and answers wrongly

    proof = onnxproof.export(module, inputs, tmp_path / "m.onnx", budget_s=BUDGET_S, explain=False)
    assert proof.verdict is Verdict.DIVERGED and not proof.passed


def test_the_exit_code_says_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n\n\nclass Divided(torch.nn.Module):\n    def forward(self, x):\n"
        "        return torch.nn.functional.avg_pool2d(x, 2, divisor_override=3)\n\n\ndef build():\n    return Divided(), (torch.rand(1, 2, 6, 6),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["export", "model.py:build", "-o", "m.onnx", "--budget", "2", "-q"]) == 1
