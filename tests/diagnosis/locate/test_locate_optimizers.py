"""An optimizer of ONNX Runtime that changes the answers is found by bisection, with the nodes that it took."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate import optimizers
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.results import Stage
from onnxproof.system.deadline import Deadline

X = normal(4, 6) * np.float32(3)
LIMIT = 1e-6


def quantized_twice(*, named: bool = True) -> onnx.ModelProto:
    """Two roundings with other scales, which DoubleQDQPairsRemover of ONNX Runtime makes one."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s1", "z1"], ["q1"], "first_q"),
        helper.make_node("DequantizeLinear", ["q1", "s1", "z1"], ["d1"], "first_d"),
        helper.make_node("QuantizeLinear", ["d1", "s2", "z2"], ["q2"], "second_q"),
        helper.make_node("DequantizeLinear", ["q2", "s2", "z2"], ["d2"], "second_d"),
        helper.make_node("Neg", ["d2"], ["y"], "minus"),
    ]
    if not named:
        for node in nodes:
            node.ClearField("name")
    constants = {
        "s1": np.float32(0.1).reshape(()),
        "z1": np.array(0, np.int8),
        "s2": np.float32(0.07).reshape(()),
        "z2": np.array(10, np.int8),
    }
    return graph_model(nodes, {"x": X}, constants)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The file against itself: it is right, and the optimized session is not."""
    both = quantized_twice()
    return scene_between(tmp_path, both, both, {"x": X})


def test_the_optimizer_is_named_with_the_nodes_that_it_removed(scene: Scene) -> None:
    location = optimizers.locate(scene, LIMIT)
    assert (location.stage, location.optimizer) == (Stage.OPTIMIZER, "DoubleQDQPairsRemover")
    assert location.nodes == ("second_q", "first_d")
    assert {suspect.why for suspect in location.suspects} == {"changed by DoubleQDQPairsRemover"}
    assert "right when the optimizer DoubleQDQPairsRemover is disabled" in location.evidence


def test_nodes_without_names_are_found_by_their_values(tmp_path: Path) -> None:
    both = quantized_twice(named=False)
    location = optimizers.locate(scene_between(tmp_path, both, both, {"x": X}), LIMIT)
    assert location.optimizer == "DoubleQDQPairsRemover"
    assert "d1" in location.nodes and "y" not in location.nodes


def test_what_rounds_comes_before_what_only_scales(scene: Scene) -> None:
    kinds = [suspect.op_type for suspect in optimizers.locate(scene, LIMIT).suspects]
    assert kinds == sorted(kinds, reverse=True)
    assert set(kinds) == {"QuantizeLinear", "DequantizeLinear"}


def test_answers_that_no_optimizer_changes_name_none(scene: Scene) -> None:
    unreachable = replace(scene, truth=[scene.truth[0] + 1])
    location = optimizers.locate(unreachable, LIMIT)
    assert location.stage is Stage.OPTIMIZER and location.optimizer is None
    assert location.nodes == ()
    assert location.evidence == (
        "right without optimisation, wrong with it; no single optimizer could be named"
    )


def test_after_the_deadline_no_optimizer_is_named(scene: Scene) -> None:
    location = optimizers.locate(replace(scene, deadline=Deadline.after(0.0)), LIMIT)
    assert location.optimizer is None
    assert location.evidence.endswith("no time was left to name the optimizer")


def test_each_known_optimizer_is_listed_once() -> None:
    assert len(set(optimizers.KNOWN)) == len(optimizers.KNOWN)
