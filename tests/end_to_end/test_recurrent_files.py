"""ONNX files with recurrent nodes as references: ONNX Runtime ends the process when such a node gets an empty batch."""

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
