"""What the outputs of a sub-model should be, by the stage at which the model goes wrong."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.scene import Located, Scene
from onnxproof.diagnosis.repro.submodel import InnerValues
from onnxproof.diagnosis.repro.true_values import TrueValues
from onnxproof.onnxmodel.graph import Graph
from onnxproof.results import Gap, Location, Stage, Status, Suspect

X = normal(4, 6)
WIDE = X.astype(np.float64)
TANH, SCALE, SINE, MINUS = range(4)


def model(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Sin", ["m"], ["s"], "sine"),
        helper.make_node("Neg", ["s"], ["y"], "minus"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


def located_at(scene: Scene, stage: Stage, *suspects: str, why: str = "") -> Located:
    """The suspects, each with the value of the reference that belongs in its place."""
    traced, fetch = scene.reference.trace(scene.case.inputs)
    by_name = {"tanh": traced[1], "scale": traced[2], "sine": traced[3], "minus": traced[4]}
    location = Location(
        stage=stage,
        nodes=suspects,
        suspects=tuple(Suspect(node=name, op_type="Op", ratio=9.0, why=why) for name in suspects),
    )
    return Located(location=location, counterparts=by_name, fetch=fetch)


def truth_of(
    scene: Scene, located: Located, places: list[int], *, refused: bool = False
) -> dict[str, np.ndarray]:
    graph = Graph.of(scene.file)
    values = InnerValues(scene, graph, readable=not refused)
    truths = TrueValues(scene, located, graph, values, refused=refused)
    return dict(truths.of(values.cut(places)))


def faulty(folder: Path) -> Scene:
    """The factor should be 2 and is 3."""
    return scene_between(folder, model(2), model(3), {"x": X})


def test_an_output_of_the_model_has_the_truth_in_its_own_dtype(tmp_path: Path) -> None:
    scene = faulty(tmp_path)
    truth = truth_of(scene, located_at(scene, Stage.EXPORT, "scale"), [SINE, MINUS])
    assert list(truth) == ["y"] and truth["y"].dtype == np.float32
    np.testing.assert_allclose(truth["y"], -np.sin(np.tanh(WIDE) * 2), rtol=1e-6)


def test_an_inner_value_has_what_follows_from_the_true_value_of_the_guilty_node(
    tmp_path: Path,
) -> None:
    scene = faulty(tmp_path)
    truth = truth_of(scene, located_at(scene, Stage.EXPORT, "scale"), [SCALE, SINE])
    assert list(truth) == ["s"] and truth["s"].dtype == np.float32
    np.testing.assert_allclose(truth["s"], np.sin(np.tanh(WIDE) * 2), rtol=1e-6)


def test_only_the_first_suspect_and_confirmed_ones_are_replaced(tmp_path: Path) -> None:
    """The second suspect's own counterpart is planted wrong: it must not be taken unless it is confirmed."""
    scene = faulty(tmp_path)
    base = located_at(scene, Stage.EXPORT, "scale", "sine")
    misleading = {**base.counterparts, "sine": base.counterparts["tanh"]}
    truth = truth_of(scene, replace(base, counterparts=misleading), [SINE])
    np.testing.assert_allclose(truth["s"], np.sin(np.tanh(WIDE) * 2), rtol=1e-6)
    confirmed = located_at(scene, Stage.EXPORT, "scale", "sine", why="mends what follows")
    truth = truth_of(scene, replace(confirmed, counterparts=misleading), [SINE])
    np.testing.assert_allclose(truth["s"], np.tanh(WIDE), rtol=1e-6)


def test_without_a_counterpart_an_inner_value_has_no_truth(tmp_path: Path) -> None:
    scene = faulty(tmp_path)
    located = replace(located_at(scene, Stage.EXPORT, "scale"), counterparts={})
    assert truth_of(scene, located, [SCALE, SINE]) == {}
    assert list(truth_of(scene, located, [MINUS])) == ["y"]


def test_a_true_value_that_is_gone_is_no_truth(tmp_path: Path) -> None:
    scene = faulty(tmp_path)
    located = replace(located_at(scene, Stage.EXPORT, "scale"), fetch=lambda place: None)
    assert truth_of(scene, located, [SCALE]) == {}


def test_for_a_kernel_the_truth_is_what_the_standard_says_of_the_same_inputs(
    tmp_path: Path,
) -> None:
    """The module's own values are another matter: the factor of the file stays."""
    scene = faulty(tmp_path)
    truth = truth_of(scene, located_at(scene, Stage.RUNTIME, "scale"), [SCALE])
    assert truth["m"].dtype == np.float32
    np.testing.assert_allclose(truth["m"], np.tanh(WIDE) * 3, rtol=1e-6)


def test_for_precision_the_truth_is_computed_wide_and_given_in_the_narrow_dtype(
    tmp_path: Path,
) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "narrow", to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "h"], ["q"], "square"),
        helper.make_node("Cast", ["q"], ["y"], "widen", to=TensorProto.FLOAT),
    ]
    built = graph_model(nodes, {"x": X * np.float32(1e-3)})
    scene = scene_between(tmp_path, built, built, {"x": X * np.float32(1e-3)})
    located = Located(location=Location(stage=Stage.PRECISION, nodes=("narrow",)))
    inner = truth_of(scene, located, [0, 1])
    assert {name: value.dtype for name, value in inner.items()} == {"q": np.dtype("float16")}
    truth = truth_of(scene, located, [0, 1, 2])
    expected = ((X * np.float32(1e-3)).astype(np.float64) ** 2).astype(np.float32)
    np.testing.assert_allclose(truth["y"], expected, rtol=1e-6)


def test_for_an_optimizer_the_truth_is_the_same_part_without_optimisation(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s1", "z1"], ["q1"], "first_q"),
        helper.make_node("DequantizeLinear", ["q1", "s1", "z1"], ["d1"], "first_d"),
        helper.make_node("QuantizeLinear", ["d1", "s2", "z2"], ["q2"], "second_q"),
        helper.make_node("DequantizeLinear", ["q2", "s2", "z2"], ["y"], "second_d"),
    ]
    constants = {
        "s1": np.float32(0.1).reshape(()),
        "z1": np.array(0, np.int8),
        "s2": np.float32(0.07).reshape(()),
        "z2": np.array(10, np.int8),
    }
    built = graph_model(nodes, {"x": X}, constants)
    scene = scene_between(tmp_path, built, built, {"x": X})
    located = Located(location=Location(stage=Stage.OPTIMIZER))
    truth = truth_of(scene, located, [0, 1, 2, 3])
    first = np.rint(X / np.float32(0.1)) * np.float32(0.1)
    second = np.rint(first / np.float32(0.07)) * np.float32(0.07)
    np.testing.assert_allclose(truth["y"], second, atol=1e-6)


def test_where_only_the_dtype_is_wrong_the_values_of_the_file_are_converted(
    tmp_path: Path,
) -> None:
    gap = Gap(case="case", group="ordinary", backend="ort", output="y", status=Status.DTYPE)
    scene = replace(faulty(tmp_path), gap=gap, dtypes=[np.dtype("float64")])
    truth = truth_of(scene, located_at(scene, Stage.EXPORT, "minus"), [MINUS])
    assert truth["y"].dtype == np.float64
    np.testing.assert_allclose(truth["y"], -np.sin(np.tanh(X) * np.float32(3)), rtol=1e-5)


def test_of_a_refused_case_the_truth_of_the_outputs_is_known_in_the_dtype_of_the_reference(
    tmp_path: Path,
) -> None:
    scene = faulty(tmp_path)
    located = located_at(scene, Stage.EXPORT, "scale")
    truth = truth_of(scene, located, [TANH, SCALE, SINE, MINUS], refused=True)
    assert truth["y"].dtype == np.float32
    np.testing.assert_allclose(truth["y"], -np.sin(np.tanh(WIDE) * 2), rtol=1e-6)
