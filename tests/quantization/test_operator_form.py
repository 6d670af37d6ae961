"""Integer operators written as pairs say the same, and a wrong scale of theirs is found there."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.quantization.attribution import Study
from onnxproof.quantization.operator_form import (
    PART,
    as_pairs,
    has_integer_operators,
    operator_name,
)
from onnxproof.quantization.parameter_search import ParameterSearch
from onnxproof.runtimes import ort

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(0, 0.3, (6, 4, 3, 3)).astype(np.float32)
BIAS = RNG.normal(0, 0.5, 6).astype(np.float32)
X = RNG.uniform(-1, 1, (2, 4, 8, 8)).astype(np.float32)
X_SCALE, Y_SCALE = np.float32(2 / 255), np.float32(10 / 255)


def convolution(times: float = 1.0) -> onnx.ModelProto:
    """x -> QuantizeLinear -> QLinearConv with a scale for each filter -> DequantizeLinear -> y; the weight's scales are multiplied."""
    scale = (np.abs(WEIGHT).max((1, 2, 3)) / 127).astype(np.float32)
    arrays: dict[str, Any] = {
        "xs": X_SCALE,
        "xz": np.uint8(128),
        "w": np.rint(WEIGHT / scale.reshape(-1, 1, 1, 1)).astype(np.int8),
        "ws": scale * np.float32(times),
        "wz": np.zeros(6, np.int8),
        "ys": Y_SCALE,
        "yz": np.uint8(128),
        "b": np.rint(BIAS / (scale * X_SCALE)).astype(np.int32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        helper.make_node(
            "QLinearConv", ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["yq"], name="conv"
        ),
        helper.make_node("DequantizeLinear", ["yq", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "operators",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6, 6, 6])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answers(model: onnx.ModelProto) -> Any:
    return ort.open(model.SerializeToString(), "disabled").run({"x": X})[0]


def test_the_pairs_say_what_the_operator_says() -> None:
    model = convolution()
    assert has_integer_operators(model)
    pairs = as_pairs(model)
    assert not has_integer_operators(pairs)
    difference = np.abs(answers(model) - answers(pairs))
    assert float(difference.max()) <= Y_SCALE * 1.01
    assert float((difference > 1e-6).mean()) < 0.02


@pytest.mark.parametrize("times", [2.0, 0.25])
def test_a_weight_scale_that_is_off_is_found_in_the_operator(times: float) -> None:
    truth = answers(convolution())
    study = Study(as_pairs(convolution(times)), [("served", {"x": X})], [[truth]])
    mended = ParameterSearch(study, {"weight": WEIGHT, "bias": BIAS}, 25.0).run()
    assert mended is not None and mended.after_db > 35
    names = {n.output[0]: n.name for n in mended.model.graph.node}
    assert names[mended.repairs[0].output] == f"conv{PART}3"
    assert mended.repairs[0].what == f"its scale is {times:.3g} times what it should be"


def test_a_name_with_colons_stays_whole() -> None:
    own = onnx.helper.make_node("DequantizeLinear", ["x"], ["y"], name="onnx::MatMul_189_DQ")
    part = onnx.helper.make_node("Conv", ["x"], ["y"], name=f"onnx::conv{PART}float")
    assert operator_name(own) == "onnx::MatMul_189_DQ"
    assert operator_name(part) == "onnx::conv"
