"""A Q/DQ graph is read and changed: pairs, integer constants, ranges, biases that follow their scales."""

import numpy as np
import onnx
import pytest
from support.tiny_qdq import BIAS, SCALE, make_model

from onnxproof.quantization.qdq import constants, find_biases, find_pairs, find_weights
from onnxproof.quantization.qdq_edit import (
    scale_and_zero_point,
    with_floats,
    with_ranges,
    without_rounding,
)


def op_types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def test_pairs_weights_and_biases_are_found() -> None:
    model = make_model()
    assert [(pair.value, pair.results) for pair in find_pairs(model)] == [
        ("x", ("x_dq",)),
        ("c", ("c_dq",)),
    ]
    assert [weight.floats.ravel().tolist() for weight in find_weights(model)] == [[1.0, -63.5]]
    assert [bias.result for bias in find_biases(model)] == ["b"]


def test_a_pair_is_taken_out_and_its_consumer_reads_the_value_before_it() -> None:
    changed = without_rounding(make_model(), ["c"])
    assert [pair.value for pair in find_pairs(changed)] == ["x"]
    assert changed.graph.node[-1].input[0] == "c"
    onnx.checker.check_model(changed)


def test_no_rounding_is_left_where_no_value_is_named() -> None:
    assert "QuantizeLinear" not in op_types(without_rounding(make_model()))


def test_a_weight_is_replaced_by_floats() -> None:
    changed = with_floats(make_model(), {"w": np.zeros((2, 1, 1, 1), np.float32)})
    assert op_types(changed).count("DequantizeLinear") == 3
    assert not constants(changed)["w"].any()
    onnx.checker.check_model(changed)


def test_a_bias_follows_the_scale_of_its_layer() -> None:
    limits = {"x": (np.asarray(-32.0), np.asarray(31.75))}
    changed = with_ranges(make_model(), limits)
    assert find_pairs(changed)[0].scale == pytest.approx(SCALE / 2)
    integers = find_biases(changed)[0].integers
    assert integers.tolist() == [2 * BIAS[0], 2**31 - 1]


@pytest.mark.parametrize(
    ("low", "high", "dtype", "scale", "zero"),
    [
        (0.0, 255.0, "uint8", 1.0, 0),
        (-128.0, 127.0, "uint8", 1.0, 128),
        (-127.0, 127.0, "int8", 1.0, 0),
        (1.0, 510.0, "uint8", 2.0, 0),
    ],
)
def test_scale_and_zero_point_of_a_range(
    low: float, high: float, dtype: str, scale: float, zero: int
) -> None:
    found = scale_and_zero_point(np.asarray(low), np.asarray(high), dtype)
    assert (float(found[0]), int(found[1]), str(found[1].dtype)) == (scale, zero, dtype)
