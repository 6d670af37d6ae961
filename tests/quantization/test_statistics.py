"""What a hypothesis changes in the module it puts back, also what torch writes without counting it."""

import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

import onnxproof


def test_hypotheses_leave_the_statistics_of_a_batch_norm_alone(tmp_path: Path) -> None:
    """Batch norm put into training mode writes its statistics; the next hypothesis must not meet them."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Hardswish(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
    ).eval()
    x, path = torch.randn(2, 3, 12, 12), tmp_path / "net.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (x,), path, dynamo=True, dynamic_shapes=({0: "batch"},), verbose=False
        )
    model = onnx.load(path)
    (node,) = [n for n in model.graph.node if n.op_type == "HardSwish"]
    node.op_type = "Identity"
    onnx.save(model, path)
    proof = onnxproof.verify(module, path, (x,), dynamic_shapes=({0: "batch"},))
    assert proof.location is not None and proof.location.nodes[0] == node.name
    assert (proof.causes[0].code, proof.causes[0].proven) == ("missing-op", True)


def test_a_norm_without_statistics_survives_every_hypothesis(tmp_path: Path) -> None:
    """Torch reads statistics that are not there, which ends the process: asked of it, the hypothesis is refused."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.LeakyReLU(0.1), nn.Conv2d(8, 4, 3)
    ).eval()
    x, path = torch.randn(2, 3, 12, 12), tmp_path / "net.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), path, dynamo=False)
    model = onnx.load(path)
    (node,) = [n for n in model.graph.node if n.op_type == "InstanceNormalization"]
    node.op_type = "Identity"
    del node.input[1:], node.attribute[:]
    onnx.save(model, path)
    proof = onnxproof.verify(module, path, (x,))
    assert proof.location is not None and proof.location.nodes[0] == node.name
    assert any(words.startswith("train-mode: ") for words in proof.tried), proof.tried
