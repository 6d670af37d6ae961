"""TorchScript is first class: its files are references, its exports are located and explained, and it can be exported itself."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import onnxproof
from onnxproof.cli import main
from onnxproof.exporter.export import quiet


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.norm(self.inner(x)))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    module = Gate().eval()
    torch.jit.trace(module, torch.randn(2, 6)).save(str(tmp_path / "gate.pt"))
    with quiet():
        torch.onnx.export(
            module,
            (torch.randn(2, 6),),
            str(tmp_path / "gate.onnx"),
            dynamo=False,
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}},
            opset_version=17,
        )
    return tmp_path


def test_a_torchscript_file_needs_no_example_on_the_command_line(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(place / "gate.pt"), str(place / "gate.onnx"), "--budget", "2"]) == 0
    assert "FAITHFUL" in capfd.readouterr().out


def test_a_fault_in_its_export_is_located_and_explained(place: Path) -> None:
    model = onnx.load(place / "gate.onnx")
    node = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(attribute for attribute in node.attribute if attribute.name == "epsilon").f = 1e-3
    onnx.save(model, place / "wrong.onnx")
    proof = onnxproof.verify(str(place / "gate.pt"), place / "wrong.onnx", budget_s=60)
    assert proof.verdict in (onnxproof.Verdict.DRIFT, onnxproof.Verdict.DIVERGED)
    assert proof.location is not None and proof.location.nodes[0] == node.name
    assert proof.causes and (proof.causes[0].code, proof.causes[0].proven) == ("attribute", True)


def test_a_scripted_branch_is_exported_with_both_ways(tmp_path: Path) -> None:
    class Signed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.sum() > 0):
                return x * 2
            return x * 3

    proof = onnxproof.export(
        torch.jit.script(Signed()),
        (torch.ones(2, 3),),
        tmp_path / "m.onnx",
        budget_s=2,
        explain=False,
    )
    assert proof.verdict is onnxproof.Verdict.FAITHFUL
    assert proof.export is not None and [a.name for a in proof.export.attempts] == [
        "standard",
        "scripted",
    ]
    session = __import__("onnxruntime").InferenceSession(tmp_path / "m.onnx")
    assert np.array_equal(
        session.run(None, {"x": -np.ones((2, 3), np.float32)})[0], -3 * np.ones((2, 3), np.float32)
    )
