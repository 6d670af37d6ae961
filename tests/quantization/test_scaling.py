"""Channels are rescaled between a producer and its consumers, and the float outputs stay."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import Index
from onnxproof.quantization.insert_qdq import Plan
from onnxproof.quantization.placement import arrangements
from onnxproof.quantization.scaling import factors, links, rescale


@pytest.fixture
def model() -> onnx.ModelProto:
    """Gemm -> Relu -> Gemm."""
    rng = np.random.default_rng(0)
    arrays = {
        "w1": rng.standard_normal((3, 4)).astype(np.float32),
        "b1": rng.standard_normal(4).astype(np.float32),
        "w2": rng.standard_normal((4, 2)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("Gemm", ["r", "w2"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_rescaling_keeps_the_outputs(model: onnx.ModelProto) -> None:
    x = np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    before = ReferenceEvaluator(model).run(None, {"x": x})[0]
    index = Index(model)
    (link,) = links(index, ("Gemm",))
    assert (link.producer.name, link.value) == ("first", "r")
    stats = Statistics(axis=-1)
    stats.update(np.asarray([[1.0, 10.0, 100.0, 0.0]], np.float32), "sample")
    divisor = factors(link, {"r": stats}, index, 0.5)
    assert divisor is not None and divisor[3] == 1.0
    rescale(index, link, divisor)
    after = ReferenceEvaluator(model).run(None, {"x": x})[0]
    assert np.allclose(before, after, rtol=1e-5, atol=1e-5)


def test_arrangements_leave_excluded_nodes_out(model: onnx.ModelProto) -> None:
    plans = dict(arrangements(model, Plan(), frozenset({"second"})))
    assert plans["weights"].nodes == ("first", "relu")
    assert plans["weights"].float_outputs == {"y"}
