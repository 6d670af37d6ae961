"""Layers as matrix products: rows times the weight matrix give what the operator gives."""

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.tiny_qdq import make_model

from onnxproof.quantization.layer_matrices import input_rows, weight_matrix
from onnxproof.quantization.saturation import find_saturated_biases, reduce_weight_range


def test_a_convolution_is_a_product_of_rows() -> None:
    rng = np.random.default_rng(0)
    data, weight = rng.standard_normal((2, 3, 5, 6)), rng.standard_normal((4, 3, 3, 2))
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 1], pads=[1, 0, 1, 1])
    dequantize = helper.make_node("DequantizeLinear", ["w_q", "s"], ["w"])
    initializer = numpy_helper.from_array(weight.astype(np.float32), "w_q")
    graph = helper.make_graph([dequantize, node], "g", [], [], [initializer])
    rows = input_rows(node, data, helper.make_model(graph))
    assert rows is not None
    matrix, restore_shape = weight_matrix(node, weight)
    wanted = ReferenceEvaluator(node).run(None, {"x": data, "w": weight})[0]
    found = (rows @ matrix.T).reshape(2, *wanted.shape[2:], 4).transpose(0, 3, 1, 2)
    assert np.allclose(found, wanted)
    assert np.array_equal(restore_shape(matrix), weight)


def test_grouped_convolutions_have_no_rows() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, kernel_shape=[1, 1])
    dequantize = helper.make_node("DequantizeLinear", ["w_q", "s"], ["w"])
    graph = helper.make_graph([dequantize, node], "g", [], [])
    assert input_rows(node, np.zeros((1, 2, 3, 3)), helper.make_model(graph)) is None


def test_a_matrix_product_reads_the_last_axis() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    rows = input_rows(node, np.zeros((2, 3, 4)), onnx.ModelProto())
    assert rows is not None and rows.shape == (6, 4)
    matrix, restore_shape = weight_matrix(node, np.arange(8.0).reshape(4, 2))
    assert matrix.shape == (2, 4) and restore_shape(matrix).shape == (4, 2)


def test_seven_bits_halve_the_integers_and_double_the_scale() -> None:
    reduced = reduce_weight_range(make_model())
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in reduced.graph.initializer}
    assert arrays["w_q"].ravel().tolist() == [1, -64]
    assert arrays["scale_reduced_c"] == 1.0


def test_a_bias_at_the_end_of_its_type_is_found() -> None:
    assert find_saturated_biases(make_model()) == ["b"]
