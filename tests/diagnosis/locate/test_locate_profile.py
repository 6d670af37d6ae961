"""The noise ratio along the graph, in the order of its nodes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import profile
from onnxproof.diagnosis.locate.match import Match
from onnxproof.numerics.sketch import sketch
from onnxproof.onnxmodel.graph import Graph

X = normal(4, 6)


def graph() -> Graph:
    nodes = [
        helper.make_node("Constant", [], ["c"], "constant", value_float=2.0),
        helper.make_node("Mul", ["x", "c"], ["m"], "/block/Mul"),
        helper.make_node("Split", ["m"], ["a", "b"], "split"),
        helper.make_node("Add", ["a", "b"], ["y"], "add"),
    ]
    return Graph.of_nodes(nodes, static=(), inputs=["x"], outputs=["y"])


def found(gap: float) -> Match:
    return Match(sketch(X), None, gap)


def test_each_node_has_the_largest_gap_of_its_values_in_units_of_the_noise() -> None:
    gaps = {"y": 8e-6, "b": 3e-6, "a": 1e-6, "m": 5e-7, "c": 1.0}
    nodes = profile.of_values(graph(), gaps, 1e-6)
    assert [(gap.node, gap.op_type) for gap in nodes] == [
        ("/block/Mul", "Mul"),
        ("split", "Split"),
        ("add", "Add"),
    ]
    assert [gap.ratio for gap in nodes] == pytest.approx([0.5, 3.0, 8.0])
    assert [gap.module for gap in nodes] == ["block", None, None]


def test_a_case_without_noise_divides_by_no_zero() -> None:
    [gap] = profile.of_values(graph(), {"y": 1e-12}, 0.0)
    assert gap.ratio == pytest.approx(1.0)


def test_a_step_that_the_module_never_computed_is_left_out_unless_it_is_wrong() -> None:
    matches = {"m": found(1e-7), "a": found(0.3), "b": found(1e-7), "y": found(0.5)}
    nodes = profile.of_matches(graph(), matches, {3: 0.5}, 1e-7)
    assert [gap.node for gap in nodes] == ["/block/Mul", "add"]
    assert [gap.ratio for gap in nodes] == pytest.approx([1.0, 5e6])


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "w"], ["y"], "scale"),
    ]
    return graph_model(nodes, {"x": X}, {"w": normal(4, 6, seed=1)})


def test_a_right_file_has_a_profile_of_rounding(tmp_path: Path) -> None:
    scene = replace(scene_between(tmp_path, model(), model(), {"x": X}), noise=1e-7)
    measured = profile.measure(scene)
    assert measured is not None
    assert (measured.case, measured.against) == (
        "case",
        "the runtime's values against the file evaluated in float64",
    )
    assert [gap.node for gap in measured.nodes] == ["tanh", "scale"]
    assert all(0 < gap.ratio < 3 for gap in measured.nodes)
    again = profile.measure(replace(scene, noise=1e-9))
    assert again is not None
    np.testing.assert_allclose(
        [gap.ratio for gap in again.nodes], [gap.ratio * 100 for gap in measured.nodes]
    )


def test_a_file_that_the_evaluator_refuses_has_no_profile(tmp_path: Path) -> None:
    nodes = [helper.make_node("SampleOp", ["x"], ["y"], "sample", domain="com.microsoft")]
    refused = graph_model(nodes, {"x": X})
    refused.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    scene = scene_between(tmp_path, refused, refused, {"x": X})
    assert profile.measure(scene) is None
