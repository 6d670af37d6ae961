"""The smallest part of a model that shows the fault, and how wrong it is there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.smallest import Search
from onnxproof.diagnosis.repro.submodel import Repro, run
from onnxproof.errors import OnnxproofError
from onnxproof.results import Gap, Location, Stage, Status, Suspect

X = normal(4, 6)
WIDE = X.astype(np.float64)


def model(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["s"], "sine"),
        helper.make_node("Add", ["s", "t"], ["y"], "add"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


def located_at(scene: Scene, node: str, true_place: int, stage: Stage = Stage.EXPORT) -> Located:
    traced, fetch = scene.reference.trace(scene.case.inputs)
    suspect = Suspect(node=node, op_type="Op", ratio=9.0)
    location = Location(stage=stage, nodes=(node, "sine"), suspects=(suspect,))
    return Located(location=location, counterparts={node: traced[true_place]}, fetch=fetch)


def names(scene: Scene, repro: Repro) -> list[str]:
    return [scene.file.model.graph.node[place].name for place in repro.submodel.places]


def test_the_guilty_node_alone_shows_it_with_its_own_input(tmp_path: Path) -> None:
    """The truth is 2 t and the node computes 3 t: an error of a half."""
    scene = scene_between(tmp_path, model(2), model(3), {"x": X})
    repro = Search(scene, located_at(scene, "scale", 2)).smallest()
    assert names(scene, repro) == ["scale"]
    assert list(repro.submodel.inputs) == ["t"] and repro.level == "all"
    np.testing.assert_allclose(repro.truth["m"], np.tanh(WIDE) * 2, rtol=1e-6)
    np.testing.assert_allclose(repro.answers["m"], np.tanh(WIDE) * 3, rtol=1e-6)
    assert repro.refusal == ""


def test_the_limit_lies_half_way_between_rounding_and_the_fault(tmp_path: Path) -> None:
    """The root of 1e-7 times a half, and of 1e-3 times a half with more noise."""
    scene = scene_between(tmp_path, model(2), model(3), {"x": X})
    located = located_at(scene, "scale", 2)
    assert Search(scene, located).smallest().limits == {"m": 2.2e-4}
    noisy = replace(scene, noise=1e-3)
    assert Search(noisy, located).smallest().limits == {"m": 2.2e-2}


def short(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["y"], "sine"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


def test_without_a_truth_for_the_node_the_part_grows_to_the_output(tmp_path: Path) -> None:
    scene = scene_between(tmp_path, short(2), short(3), {"x": X})
    located = replace(located_at(scene, "scale", 2), counterparts={})
    repro = Search(scene, located).smallest()
    assert names(scene, repro) == ["scale", "sine"]
    assert list(repro.truth) == ["y"]
    assert list(repro.submodel.inputs) == ["t"]


def test_a_right_model_has_no_repro(tmp_path: Path) -> None:
    scene = scene_between(tmp_path, model(2), model(2), {"x": X})
    with pytest.raises(OnnxproofError, match="shows the fault on onnxruntime alone") as raised:
        Search(scene, located_at(scene, "scale", 2)).smallest()
    assert raised.value.code == "no-repro"
    assert list(raised.value.notes) == ["the fault was seen on ort, case `case`"]


def test_a_node_inside_another_goes_with_that_one(tmp_path: Path) -> None:
    """The first name is no node of the main graph; the one that is, is cut out."""
    scene = scene_between(tmp_path, model(2), model(3), {"x": X})
    located = located_at(scene, "scale", 2)
    inner = Suspect(node="outer/body/inner", op_type="Op", ratio=9.0)
    outer = located.location.suspects[0]
    location = replace(
        located.location,
        nodes=("outer/body/inner", "scale"),
        suspects=(inner, replace(outer, why="confirmed")),
    )
    repro = Search(scene, replace(located, location=location)).smallest()
    assert names(scene, repro) == ["scale"]


def quantized_twice() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("QuantizeLinear", ["t", "s1", "z1"], ["q1"], "first_q"),
        helper.make_node("DequantizeLinear", ["q1", "s1", "z1"], ["d1"], "first_d"),
        helper.make_node("QuantizeLinear", ["d1", "s2", "z2"], ["q2"], "second_q"),
        helper.make_node("DequantizeLinear", ["q2", "s2", "z2"], ["d2"], "second_d"),
        helper.make_node("Neg", ["d2"], ["y"], "minus"),
    ]
    constants = {
        "s1": np.float32(0.1).reshape(()),
        "z1": np.array(0, np.int8),
        "s2": np.float32(0.07).reshape(()),
        "z2": np.array(10, np.int8),
    }
    return graph_model(nodes, {"x": X}, constants)


def test_for_an_optimizer_the_part_is_wrong_at_the_served_level_and_right_without(
    tmp_path: Path,
) -> None:
    built = quantized_twice()
    scene = scene_between(tmp_path, built, built, {"x": X})
    nodes = ("second_q", "first_d")
    located = Located(location=Location(stage=Stage.OPTIMIZER, nodes=nodes))
    repro = Search(scene, located).smallest()
    assert {"first_q", "first_d", "second_q", "second_d"} == set(names(scene, repro))
    assert repro.level == "all"
    [(name, truth)] = repro.truth.items()
    plain, _ = run(repro.submodel, "disabled")
    np.testing.assert_array_equal(plain[name], truth)
    assert np.abs(repro.answers[name] - truth).max() > 0.05


def test_an_optimizer_is_shown_at_the_served_level_only(tmp_path: Path) -> None:
    built = quantized_twice()
    scene = scene_between(tmp_path, built, built, {"x": X}, backend="ort:disabled")
    nodes = ("second_q", "first_d")
    with pytest.raises(OnnxproofError, match="shows the fault on onnxruntime alone"):
        Search(scene, Located(location=Location(stage=Stage.OPTIMIZER, nodes=nodes))).smallest()


def shaped(*shape: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Reshape", ["t", "shape"], ["r"], "reshape"),
        helper.make_node("Neg", ["r"], ["y"], "minus"),
    ]
    return graph_model(nodes, {"x": X}, {"shape": np.array(shape)})


def test_of_a_refusal_the_part_up_to_the_output_is_kept_with_the_words_of_the_runtime(
    tmp_path: Path,
) -> None:
    """Inner values of a file that refuses can still be read where they come before the refusal."""
    scene = scene_between(tmp_path, shaped(3, 8), shaped(5, 5), {"x": X})
    gap = Gap(case="case", group="ordinary", backend="ort", output="y", status=Status.REFUSED)
    refused = replace(scene, gap=gap)
    repro = Search(refused, located_at(scene, "reshape", 2)).smallest()
    assert names(scene, repro) == ["reshape", "minus"]
    assert "reshape" in repro.refusal.lower() and repro.answers == {}
    assert repro.limits == {"y": pytest.approx(2e-6)}


def counted(step: int) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], "count", to=onnx.TensorProto.INT64),
        helper.make_node("Add", ["n", "step"], ["a"], "shift"),
        helper.make_node("Cast", ["a"], ["y"], "widen", to=onnx.TensorProto.FLOAT),
    ]
    return graph_model(nodes, {"x": X}, {"step": np.array(step)})


def test_integers_must_be_equal(tmp_path: Path) -> None:
    scene = scene_between(tmp_path, counted(5), counted(6), {"x": X})
    repro = Search(scene, located_at(scene, "shift", 2)).smallest()
    assert names(scene, repro) == ["shift"]
    assert repro.limits == {"a": 0.0}
    np.testing.assert_array_equal(repro.answers["a"] - repro.truth["a"], np.ones((4, 6)))
