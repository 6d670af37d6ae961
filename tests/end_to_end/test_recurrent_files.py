"""ONNX files with recurrent nodes as references: ONNX Runtime ends the process when such a node gets an empty batch."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import onnxproof


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_an_empty_batch_does_not_end_the_process(cell: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(4, 6, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cell(x)[0][:, -1]

    torch.onnx.export(
        Last().eval(),
        (torch.randn(2, 5, 4),),
        tmp_path / "m.onnx",
        dynamo=False,
        input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )
    code = "import sys, onnxproof; print(onnxproof.diff(sys.argv[1], sys.argv[1], budget_s=2).verdict.value)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(onnxproof.__file__).parent.parent)},
    )
    assert done.returncode == 0 and done.stdout.strip() == "faithful", done.stderr[-500:]


@pytest.mark.parametrize("wrong", [False, True])
def test_saturated_gates_of_a_gru_are_no_fault(wrong: bool, tmp_path: Path) -> None:
    """Inside of ONNX Runtime's GRU tanh ends at 1 + 8 * 2**-24, where torch's and the truth's ends at 1."""
    torch.manual_seed(0)

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRU(4, 5, batch_first=True)

        def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
            return self.cell(x, state[None])[1][0]

    subject = Stream().eval()
    served = copy.deepcopy(subject)
    if wrong:
        with torch.no_grad():
            served.cell.bias_hh_l0[12] += 1e-3
    example = (torch.randn(2, 9, 4), torch.randn(2, 5))
    torch.onnx.export(
        served,
        example,
        tmp_path / "m.onnx",
        dynamo=False,
        input_names=["x", "state"],
        dynamic_axes={"x": {0: "b", 1: "t"}, "state": {0: "b"}},
    )
    proof = onnxproof.verify(
        subject,
        tmp_path / "m.onnx",
        example,
        dynamic_shapes=({0: "b", 1: "t"}, {0: "b"}),
        budget_s=20,
        explain=False,
        loop=None,
    )
    saturated = [gap for gap in proof.gaps if gap.case == "float-x-large"]
    assert saturated or wrong
    assert (proof.verdict.value == "faithful") is not wrong, proof.sentence()
