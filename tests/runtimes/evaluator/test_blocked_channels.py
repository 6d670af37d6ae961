"""Operators on blocks of channels, as ONNX Runtime's offline optimisation writes them."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from onnxproof.runtimes import reference
from onnxproof.runtimes.evaluator.contrib import nchwc


def _net(path: Path, *, channels: int, filters: int, group: int) -> np.ndarray:
    """Two convolutions, pools and an upsampling, saved after all optimisations; gives ONNX Runtime's answer."""
    random = np.random.default_rng(channels + filters)
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["m", "w2"], ["c"], pads=[1, 1, 1, 1], group=group),
        helper.make_node("Sigmoid", ["c"], ["s"]),
        helper.make_node("AveragePool", ["s"], ["v"], kernel_shape=[2, 2]),
        helper.make_node("GlobalAveragePool", ["v"], ["y"]),
    ]
    weights = {
        "w1": random.normal(size=(filters, channels, 3, 3)),
        "b1": random.normal(size=(filters,)),
        "w2": random.normal(size=(filters, filters // group, 3, 3)),
    }
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", TensorProto.FLOAT, [2, channels, 10, 10])],
        [info("y", TensorProto.FLOAT, [2, filters, 1, 1])],
        [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(path)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = random.normal(size=(2, channels, 10, 10)).astype(np.float32)
    np.save(path.with_suffix(".npy"), x)
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize(
    ("channels", "filters", "group"),
    [(3, 32, 1), (16, 32, 1), (3, 20, 1), (32, 32, 32), (3, 32, 2)],
)
def test_the_evaluator_gives_what_the_runtime_gives(
    tmp_path: Path, channels: int, filters: int, group: int
) -> None:
    path = tmp_path / "net.onnx"
    answer = _net(path, channels=channels, filters=filters, group=group)
    domains = {node.domain for node in onnx.load(path).graph.node}
    assert nchwc.DOMAIN in domains
    (given_answer,) = reference.open(path, "float64").run({"x": np.load(path.with_suffix(".npy"))})
    np.testing.assert_allclose(given_answer, answer, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(
    filters=st.integers(1, 40),
    channels=st.sampled_from([1, 3, 16, 32]),
    seed=st.integers(0, 99),
)
def test_weights_come_back_out_of_their_blocks(filters: int, channels: int, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(size=(filters, channels, 3, 2))
    block = nchwc.block_size()
    room = (-(-filters // block) * block, channels, 3, 2)
    blocked = nchwc.blocked_weights(weights, room, 1)
    assert blocked is not None
    np.testing.assert_array_equal(nchwc.plain_weights(blocked, 1)[:filters], weights)


def test_weights_that_do_not_fit_are_refused() -> None:
    assert nchwc.blocked_weights(np.zeros((40, 3, 3, 3)), (32, 3, 3, 3), 1) is None


def test_an_output_without_a_name_is_no_later_input() -> None:
    """SkipSimplifiedLayerNormalization leaves two outputs out, and Clip behind it has no lower end."""
    nodes = [
        helper.make_node(
            "SkipSimplifiedLayerNormalization",
            ["x", "x", "w"],
            ["n", "", "", "sum"],
            domain="com.microsoft",
        ),
        helper.make_node("Clip", ["sum", "", "high"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", TensorProto.FLOAT, [2, 4])],
        [info("y", TensorProto.FLOAT, [2, 4])],
        [
            numpy_helper.from_array(np.ones(4, np.float32), "w"),
            numpy_helper.from_array(np.float32(1.5), "high"),
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    x = np.array([[-3, -1, 0.5, 2]] * 2, np.float32)
    (y,) = reference.open(model.SerializeToString()).run({"x": x})
    np.testing.assert_array_equal(y, np.minimum(2 * x, 1.5))
