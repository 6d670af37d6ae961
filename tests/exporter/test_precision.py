"""Half precision on graphs of a few nodes: what is rounded, what stays in float32, and how it is described."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.exporter.half_simulation import HalfSimulation, worst_db
from onnxproof.exporter.precision import LoweredPrecision, _remove_half_casts, _search


def overflowing() -> onnx.ModelProto:
    """`(x * 1e4) * 1e4 / 1e8`: the middle overflows in fp16."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"], name="large"),
        helper.make_node("Mul", ["a", "w"], ["b"], name="huge"),
        helper.make_node("Div", ["b", "v"], ["y"], name="back"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    weights = {"w": np.float32(1e4), "v": np.float32(1e8)}
    tensors = [numpy_helper.from_array(np.array(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_an_overflow_is_found_and_goes_away_with_its_nodes_in_float32() -> None:
    inputs = [{"x": np.array([1, 2, 3, 4], np.float32)}]
    simulation = HalfSimulation.of(overflowing(), "fp16", inputs)
    before = simulation.measure_db(())
    assert before == float("-inf")
    assert "huge" in [name for _, name in simulation.sensitive_nodes(())]
    kept, after = _search(simulation.measure_db, simulation.sensitive_nodes, before)
    assert "huge" in kept
    assert after > 60


def test_equal_outputs_are_exact_and_an_overflow_is_said() -> None:
    outputs = [[np.ones(3, np.float32)]]
    assert worst_db(outputs, outputs) == float("inf")
    lowered = LoweredPrecision(
        kind="fp16",
        kept=("huge",),
        before_db=float("-inf"),
        after_db=float("inf"),
    )
    assert lowered.describe() == "fp16 (exact on 1 cases); kept in float32 (from overflow): huge"


def test_no_value_passes_through_half_between_two_float32_nodes() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["single"], to=TensorProto.FLOAT),
        helper.make_node("Log", ["single"], ["y"]),
    ]
    left = _remove_half_casts(nodes, {"y"})
    assert left[-1].input[0] == "a"
    assert "single" not in [name for node in left for name in node.output]
