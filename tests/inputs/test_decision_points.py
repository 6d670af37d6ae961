"""Decision points of a small graph: which sides the cases reached, and a case that is steered across a bound."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxproof.inputs.decision_points import Point, Watch
from onnxproof.onnxmodel import onnx_file
from onnxproof.results import Case, InputInfo, OutputInfo, Signature
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system.deadline import Deadline

SIGNATURE = Signature(
    inputs=(InputInfo(name="x", dtype="float32", shape=(4,), dims=(4,), onnx_name="x"),),
    outputs=(OutputInfo(name="y", dtype="float32", shape=(4,), onnx_name="y"),),
)


def watch(folder: Path) -> Watch:
    """relu(clip(x, 0, 6)), and a comparison of constants, which decides nothing."""
    constants = {"low": np.float32(0), "high": np.float32(6), "c": np.float32(1)}
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["clipped"], name="clip"),
        helper.make_node("Relu", ["clipped"], ["y"], name="relu"),
        helper.make_node("Less", ["c", "low"], ["unused"], name="constant"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "y")]
    initializers = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], initializers)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return Watch(onnx_file.read(folder / "m.onnx"), SIGNATURE, Clock())


def case(*values: float) -> Case:
    inputs = {"x": np.array(values, np.float32)}
    return Case(name="c", group="ordinary", about="", inputs=inputs, ordinary=True)


def test_the_points_are_those_that_depend_on_the_inputs(tmp_path: Path) -> None:
    points = [(point.node, point.bound) for point in watch(tmp_path).points]
    assert points == [("clip", 0.0), ("clip", 6.0), ("relu", 0.0)]


def test_a_point_is_exercised_once_both_sides_were_seen(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    watched.look(case(1, 2, 3, 4))
    assert watched.coverage().exercised == 0
    assert watched.coverage().missed[1] == "clip (Clip): only below seen"
    watched.look(case(-1, 2, 3, 9))
    assert watched.coverage().exercised == 3


def test_inputs_are_steered_across_a_bound_and_up_to_it(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    watched.look(case(1, 2, 3, 4))
    crossing, edge, *_ = watched.steer(20, Deadline.after(60))
    assert crossing.name.startswith("steer-clip-") and not crossing.ordinary
    assert edge.name == f"{crossing.name}-edge"
    assert abs(edge.inputs["x"][0]) < 0.01 < abs(crossing.inputs["x"][0])


def test_a_value_on_the_bound_counts_for_either_side() -> None:
    point = Point("n", "Greater", "a", "b")
    point.look({"a": np.array([1.0, 2.0]), "b": np.array([1.0, 1.0])})
    assert point.seen == {"on", "above"} and point.exercised
