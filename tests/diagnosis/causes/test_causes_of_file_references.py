"""The reference is an ONNX file: its own weights, operators and attributes are tried in the candidate."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxproof

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(4, 4)).astype(np.float32)
BIAS = RNG.normal(size=4).astype(np.float32)


def written(path: Path, bias: np.ndarray, activation: onnx.NodeProto) -> Path:
    """A linear layer with an activation."""
    nodes = [helper.make_node("Gemm", ["x", "weight", "bias"], ["h"], name="linear"), activation]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xy"]
    weights = [numpy_helper.from_array(WEIGHT, "weight"), numpy_helper.from_array(bias, "bias")]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)
    return path


def activation(op_type: str, **attributes: float) -> onnx.NodeProto:
    return helper.make_node(op_type, ["h"], ["y"], name="act", **attributes)


MOVED = BIAS + np.array([0, 0.25, 0, 0], np.float32)
LEAKY = {"alpha": 0.1}


@pytest.mark.parametrize(
    ("bias", "node", "named", "code", "words"),
    [
        (MOVED, activation("LeakyRelu", **LEAKY), "linear", "weights", "`bias` of linear differs"),
        (BIAS, activation("Tanh"), "act", "attribute", "is Tanh, in the reference file LeakyRelu"),
        (BIAS, activation("LeakyRelu", alpha=0.37), "act", "attribute", "0.37"),
    ],
)
def test_what_differs_from_the_reference_file_is_named_and_proven(
    tmp_path: Path, bias: np.ndarray, node: onnx.NodeProto, named: str, code: str, words: str
) -> None:
    right = written(tmp_path / "right.onnx", BIAS, activation("LeakyRelu", **LEAKY))
    wrong = written(tmp_path / "wrong.onnx", bias, node)
    proof = onnxproof.diff(right, wrong, budget_s=30)
    cause = proof.causes[0]
    assert proof.location is not None
    assert (proof.location.nodes[0], cause.code, cause.proven) == (named, code, True)
    assert words in cause.evidence
    assert cause.fix is not None
    assert cause.fix.verdict is onnxproof.Verdict.FAITHFUL
