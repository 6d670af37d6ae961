"""Nodes cut out of a model, with the values that they read."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.repro.submodel import InnerValues, error_of, is_integer, plain, run, save
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph

X = normal(4, 6)
TANH, CONSTANT, DOUBLED, SCALE, SINE, ADD = range(6)


def model() -> onnx.ModelProto:
    """sin(tanh(x) * (1.5 + 1.5)) + tanh(x)."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Constant", [], ["c"], "constant", value_float=1.5),
        helper.make_node("Add", ["c", "c"], ["three"], "doubled"),
        helper.make_node("Mul", ["t", "three"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["s"], "sine"),
        helper.make_node("Add", ["s", "t"], ["y"], "add"),
    ]
    return graph_model(nodes, {"x": X}, {"unused": normal(3)})


def values_of(folder: Path, built: onnx.ModelProto, *, readable: bool = True) -> InnerValues:
    scene = scene_between(folder, built, built, {"x": X})
    return InnerValues(scene, Graph.of(scene.file), readable=readable)


@pytest.fixture
def values(tmp_path: Path) -> InnerValues:
    return values_of(tmp_path, model())


def test_an_error_is_relative_for_floats_and_a_share_for_integers() -> None:
    assert error_of(np.array([3.0, 0.0]), np.array([4.0, 0.0])) == pytest.approx(0.25)
    assert error_of(np.array([1, 2, 3, 9]), np.array([1, 2, 3, 4])) == 0.5
    assert error_of(np.array([True, False]), np.array([True, False])) == 0.0


def test_what_can_not_be_compared_is_wrong_and_not_right() -> None:
    truth = np.array([1.0, 2.0])
    assert error_of(None, truth) == float("inf")
    assert error_of(np.array([[1.0, 2.0]]), truth) == float("inf")
    assert error_of(truth.astype(np.float32), truth) == 1.0
    assert error_of(np.array([], np.int64), np.array([], np.int64)) == 0.0


def test_booleans_are_integers_and_floats_are_not() -> None:
    assert is_integer(np.array([True])) and is_integer(np.array([1], np.uint8))
    assert not is_integer(np.array([1.0]))


def test_bfloat16_is_kept_as_float32_and_text_is_refused() -> None:
    narrow = np.array([1.5, 2.0], ml_dtypes.bfloat16)
    assert plain(narrow).dtype == np.float32 and plain(narrow).tolist() == [1.5, 2.0]
    assert plain(X) is X
    with pytest.raises(OnnxproofError, match="can't be kept in a safetensors file"):
        plain(np.array(["a"]))


def test_values_are_read_by_name_and_an_empty_name_is_left_out(values: InnerValues) -> None:
    read = values.get(["m", "x", ""])
    assert sorted(read) == ["m", "x"]
    np.testing.assert_allclose(read["m"], np.tanh(X) * 3, rtol=1e-5)
    assert read["x"] is values.get(["x"])["x"]


def test_a_node_that_depends_on_constants_alone_is_one(values: InnerValues) -> None:
    constant = [place for place in range(6) if values.is_constant(place)]
    assert constant == [CONSTANT, DOUBLED]


def test_random_numbers_are_no_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormal", [], ["r"], "draw", shape=[4, 6], seed=1.0),
        helper.make_node("Add", ["x", "r"], ["y"], "add"),
    ]
    assert not values_of(tmp_path, graph_model(nodes, {"x": X})).is_constant(0)


def test_only_what_the_outputs_depend_on_is_needed(values: InnerValues) -> None:
    assert values.needed(range(6), ["m"]) == [TANH, CONSTANT, DOUBLED, SCALE]
    assert values.needed([SCALE, SINE], ["s"]) == [SCALE, SINE]
    assert values.needed([ADD, SINE], ["s"]) == [SINE]


def test_a_cut_has_constants_inside_and_everything_else_as_an_input(values: InnerValues) -> None:
    cut = values.cut([SCALE, SINE])
    assert (cut.places, cut.outputs) == ([SCALE, SINE], ["s"])
    assert list(cut.inputs) == ["t"]
    np.testing.assert_allclose(cut.inputs["t"], np.tanh(X), rtol=1e-5)
    assert [node.name for node in cut.model.graph.node] == ["constant", "doubled", "scale", "sine"]
    assert list(cut.model.graph.initializer) == []
    onnx.checker.check_model(cut.model, full_check=True)
    answers, refusal = run(cut, "disabled")
    assert refusal == ""
    np.testing.assert_allclose(answers["s"], np.sin(np.tanh(X) * 3), rtol=1e-5)


def test_a_value_that_is_read_inside_alone_does_not_leave_the_cut(values: InnerValues) -> None:
    assert values.cut([TANH, SCALE]).outputs == ["t", "m"]
    assert values.cut([SCALE, SINE, ADD]).outputs == ["y"]
    assert values.cut([SCALE, SINE], ["m"]).outputs == ["m"]


def test_a_weight_in_another_file_comes_along(tmp_path: Path) -> None:
    weight = normal(4, 6, seed=2)
    built = graph_model([helper.make_node("Mul", ["x", "w"], ["y"], "scale")], {"x": X})
    built.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    scene = scene_between(tmp_path, built, built, {"x": X})
    onnx.save(built, scene.path, save_as_external_data=True, location="w.data", size_threshold=0)
    stored = onnx.load(scene.path, load_external_data=False)
    scene.file.model.CopyFrom(stored)
    cut = InnerValues(scene, Graph.of(scene.file)).cut([0])
    [tensor] = cut.model.graph.initializer
    assert tensor.data_location == TensorProto.DEFAULT and not tensor.external_data
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), weight)


def test_text_can_not_be_an_input_of_a_cut(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["text"], "write", to=TensorProto.STRING),
        helper.make_node("Cast", ["text"], ["y"], "read", to=TensorProto.FLOAT),
    ]
    values = values_of(tmp_path, graph_model(nodes, {"x": X}))
    assert values.get(["text", "x"]).keys() == {"x"}
    with pytest.raises(OnnxproofError, match="`text` is no tensor"):
        values.cut([1])
    assert values.cut([0, 1]).outputs == ["y"]


def test_bfloat16_values_cross_the_border_as_float32_under_their_own_names(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["b"], "narrow", to=TensorProto.BFLOAT16),
        helper.make_node("Identity", ["b"], ["i"], "same"),
        helper.make_node("Cast", ["i"], ["y"], "widen", to=TensorProto.FLOAT),
    ]
    cut = values_of(tmp_path, graph_model(nodes, {"x": X})).cut([1])
    assert [port.name for port in cut.model.graph.input] == ["b"]
    assert [port.name for port in cut.model.graph.output] == ["i"]
    assert [node.op_type for node in cut.model.graph.node] == ["Cast", "Identity", "Cast"]
    assert cut.inputs["b"].dtype == np.float32
    answers, _ = run(cut, "disabled")
    expected = X.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(answers["i"], expected)


def test_a_refusal_is_given_in_the_words_of_the_runtime(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], "reshape")]
    inputs = {"x": X, "shape": np.array([4, 6])}
    built = graph_model(nodes, inputs)
    scene = scene_between(tmp_path, built, built, inputs)
    cut = InnerValues(scene, Graph.of(scene.file), readable=False).cut([0])
    cut.inputs["shape"] = np.array([5, 5])
    answers, refusal = run(cut, "disabled")
    assert answers == {} and "reshape" in refusal.lower()


def test_a_model_is_saved_in_one_file(tmp_path: Path, values: InnerValues) -> None:
    cut = values.cut([SCALE])
    folder = tmp_path / "out"
    folder.mkdir()
    save(cut.model, folder / "model.onnx")
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
    assert onnx.load(folder / "model.onnx") == cut.model
