"""The answers to one case, from the file in float64 to the served model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.evaluation import (
    ServedModel,
    evaluate_by_runtime,
    evaluate_in_float64,
    evaluation_limit_s,
    measure_inner_gaps,
    model_inputs,
    outputs_error,
    plain_backend,
)
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.results import InputInfo
from onnxproof.system.deadline import Deadline
from onnxproof.testing import fake_backend

X = normal(4, 6)


def scaled(factor: float) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["y"], "scale"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """The factor should be 2 and is 3: half of the truth is added."""
    return scene_between(tmp_path, scaled(2), scaled(3), {"x": X})


def port(dtype: str, onnx_dtype: str, onnx_name: str | None = "x") -> InputInfo:
    return InputInfo(
        name="x",
        dtype=dtype,
        shape=X.shape,
        dims=X.shape,
        onnx_name=onnx_name,
        onnx_dtype=onnx_dtype,
    )


def with_port(scene: Scene, info: InputInfo) -> Scene:
    return replace(scene, signature=replace(scene.signature, inputs=(info,)))


def test_the_error_of_the_served_model_is_that_of_its_answers(scene: Scene) -> None:
    served = ServedModel(scene)
    assert served.error("ort") == pytest.approx(0.5, rel=1e-5)
    served.close()


def test_the_served_model_is_run_once_for_each_backend_and_pairing(scene: Scene) -> None:
    runs: list[int] = []

    def counted(session: object, inputs: object) -> list[np.ndarray]:
        runs.append(1)
        return [np.zeros_like(X)]

    with fake_backend("counting", counted):
        served = ServedModel(scene)
        assert served.error("counting") == served.error("counting") == 1.0
        assert served.error("counting", scene.signature) == 1.0
        served.close()
    assert len(runs) == 1


def test_a_pairing_that_lacks_the_output_is_infinitely_wrong(scene: Scene) -> None:
    output = replace(scene.signature.outputs[0], onnx_name=None)
    served = ServedModel(scene)
    assert served.error("ort", replace(scene.signature, outputs=(output,))) == float("inf")
    served.close()


def test_a_file_that_no_runtime_opens_is_infinitely_wrong(scene: Scene, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nothing")
    assert ServedModel(replace(scene, path=broken)).error("ort") == float("inf")


def test_in_float64_every_value_is_seen_and_the_gap_is_exact(scene: Scene) -> None:
    evaluation = evaluate_in_float64(scene)
    assert evaluation is not None
    assert list(evaluation.seen) == ["t", "y"]
    assert evaluation.gap == pytest.approx(0.5, rel=1e-12)
    assert (evaluation.resolution, evaluation.means) == (3e-7, "in float64")


def half_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "narrow", to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["h", "w"], ["m"], "scale"),
        helper.make_node("Cast", ["m"], ["y"], "widen", to=TensorProto.FLOAT),
    ]
    return graph_model(nodes, {"x": X}, {"w": normal(4, 6, seed=1).astype(np.float16)})


def test_the_values_of_a_file_in_half_precision_are_compared_less_finely(tmp_path: Path) -> None:
    """Twice the spacing of float16 at 1, which is 2**-10."""
    half = scene_between(tmp_path, half_model(), half_model(), {"x": X})
    evaluation = evaluate_in_float64(half)
    assert evaluation is not None
    assert evaluation.resolution == 2 * 2**-10


def test_what_the_evaluator_lacks_is_evaluated_by_the_runtime(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SampleOp", ["x"], ["s"], "sample", domain="com.microsoft"),
        helper.make_node("Mul", ["s", "three"], ["y"], "scale"),
    ]
    wrong = graph_model(nodes, {"x": X}, {"three": np.float32(3).reshape(())})
    wrong.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"], "scale")]
    right = graph_model(nodes, {"x": X}, {"two": np.float32(2).reshape(())})
    scene = scene_between(tmp_path, right, wrong, {"x": X})
    assert evaluate_in_float64(scene) is None
    evaluation = evaluate_by_runtime(scene)
    assert evaluation is not None
    assert sorted(evaluation.seen) == ["s", "y"]
    assert evaluation.gap == pytest.approx(0.5, rel=1e-6)
    assert evaluation.resolution == 1e-5
    noisy = evaluate_by_runtime(replace(scene, noise=1e-3))
    assert noisy is not None and noisy.resolution == pytest.approx(2e-2)


def test_one_evaluation_has_between_a_second_and_two_minutes(scene: Scene) -> None:
    assert evaluation_limit_s(scene) == 120.0
    assert evaluation_limit_s(replace(scene, deadline=Deadline.after(0.0))) == 1.0
    assert 1.0 < evaluation_limit_s(replace(scene, deadline=Deadline.after(50.0))) <= 50.0


def test_an_input_takes_the_dtype_that_the_file_declares(scene: Scene) -> None:
    wide = with_port(scene, port("float32", "float64"))
    assert model_inputs(wide)["x"].dtype == np.float64
    assert model_inputs(with_port(scene, port("float32", "float32")))["x"] is X
    assert model_inputs(with_port(scene, port("float32", "unknown")))["x"] is X


def test_an_input_that_the_file_lacks_is_left_out(scene: Scene) -> None:
    assert model_inputs(with_port(scene, port("float32", "float32", None))) == {}


def test_outputs_are_found_by_name_whatever_their_order(scene: Scene) -> None:
    true = scene.truth[0]
    assert outputs_error(scene, ["other", "y"], [true * 9, true]) == 0.0
    assert outputs_error(scene, ["y", "other"], [true * 9, true]) == pytest.approx(8.0)
    assert outputs_error(scene, ["other"], [true]) == float("inf")


def test_only_onnx_runtime_has_a_backend_without_optimisation(scene: Scene) -> None:
    assert plain_backend(scene) == "ort:disabled"
    assert plain_backend(replace(scene, backend="ort:basic")) == "ort:disabled"
    assert plain_backend(replace(scene, backend="reference")) == "reference"


def test_the_inner_values_of_the_runtime_are_as_far_off_as_float32_rounds(scene: Scene) -> None:
    evaluation = evaluate_in_float64(scene)
    assert evaluation is not None
    inner = measure_inner_gaps(scene, evaluation)
    assert inner is not None
    assert sorted(inner.gaps) == ["t", "y"]
    assert all(0 < gap < 3e-7 for gap in inner.gaps.values())
    assert inner.dtypes == {"t": "float32", "y": "float32"}


def test_where_no_inner_value_is_known_there_are_no_gaps(scene: Scene) -> None:
    evaluation = evaluate_in_float64(scene)
    assert evaluation is not None
    assert measure_inner_gaps(scene, replace(evaluation, seen={})) is None
