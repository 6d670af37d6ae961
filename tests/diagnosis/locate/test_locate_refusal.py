"""A file that refuses what the reference takes: what went wrong before the node that complains comes first."""

from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import refusal
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.results import Stage

X = normal(4, 6)
MESSAGE = "Non-zero status code returned while running Reshape node. Name:'reshape' Status: bad"


def pooled(kept: int) -> onnx.ModelProto:
    """The first columns of sin(x) as one row; the row must have 12 elements."""
    nodes = [
        helper.make_node("Sin", ["x"], ["s"], "sine"),
        helper.make_node("Slice", ["s", "begin", "end", "axis"], ["p"], "pool"),
        helper.make_node("Tanh", ["x"], ["t"], "aside"),
        helper.make_node("Reshape", ["p", "shape"], ["r"], "reshape"),
        helper.make_node("ReduceSum", ["t"], ["u"], "sum", keepdims=0),
        helper.make_node("Add", ["r", "u"], ["y"], "add"),
    ]
    constants = {
        "begin": np.array([0]),
        "end": np.array([kept]),
        "axis": np.array([1]),
        "shape": np.array([1, 12]),
    }
    return graph_model(nodes, {"x": X}, constants)


def scene(folder: Path) -> Scene:
    return scene_between(folder, pooled(3), pooled(5), {"x": X})


def test_the_node_that_makes_another_shape_is_named_before_the_one_that_refuses(
    tmp_path: Path,
) -> None:
    location = refusal.locate(scene(tmp_path), MESSAGE).location
    assert location.stage is Stage.GRAPH
    assert [(suspect.node, suspect.why) for suspect in location.suspects] == [
        ("pool", "what it makes is none of the reference's values"),
        ("reshape", "the runtime gives up here"),
    ]
    assert location.evidence == f"the reference answers and the file refuses: {MESSAGE}"


def test_what_does_not_lead_to_the_refusal_is_not_named(tmp_path: Path) -> None:
    """A wrong node beside the way: its value is none of the reference's, but nobody there reads it."""
    wrong = pooled(5)
    wrong.graph.node[2].op_type = "Exp"
    beside = scene_between(tmp_path, pooled(3), wrong, {"x": X})
    assert refusal.locate(beside, MESSAGE).location.nodes == ("pool", "reshape")


def test_a_message_without_a_node_gives_the_stage_alone(tmp_path: Path) -> None:
    location = refusal.locate(scene(tmp_path), "out of memory").location
    assert (location.stage, location.nodes) == (Stage.GRAPH, ())
    assert location.evidence == "the reference answers and the file refuses: out of memory"


def test_a_name_that_is_not_in_the_file_is_no_node(tmp_path: Path) -> None:
    assert refusal.locate(scene(tmp_path), "Name:'fused_node_7' Status").location.nodes == ()


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    location = refusal.locate(scene(tmp_path), "x" * 1000).location
    assert location.evidence == f"the reference answers and the file refuses: {'x' * 200}"


def test_a_right_file_that_a_runtime_refuses_names_the_refusing_node_alone(
    tmp_path: Path,
) -> None:
    healthy = scene_between(tmp_path, pooled(3), pooled(3), {"x": X})
    assert refusal.locate(healthy, MESSAGE).location.nodes == ("reshape",)
