"""A hand-made quantized graph: x -> Q/DQ -> Conv (int8 weight, int32 bias) -> Q/DQ -> Relu -> y."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.asarray([[[[2]]], [[[-127]]]], np.int8)
BIAS = np.asarray([10, 2**31 - 1], np.int32)
SCALE = 0.5
"""Of the input, the weight and the value in between."""


def make_model() -> onnx.ModelProto:
    scalars = {"scale": np.float32(SCALE), "bias_scale": np.float32(SCALE * SCALE)}
    arrays = {name: np.asarray(value) for name, value in scalars.items()}
    arrays |= {"zero": np.asarray(128, np.uint8), "w_q": WEIGHT, "b_q": BIAS}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "scale", "zero"], ["x_dq"]),
        helper.make_node("DequantizeLinear", ["w_q", "scale"], ["w"]),
        helper.make_node("DequantizeLinear", ["b_q", "bias_scale"], ["b"]),
        helper.make_node("Conv", ["x_dq", "w", "b"], ["c"], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["c_q"]),
        helper.make_node("DequantizeLinear", ["c_q", "scale", "zero"], ["c_dq"]),
        helper.make_node("Relu", ["c_dq"], ["y"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 1, 1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2, 1, 1])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model
