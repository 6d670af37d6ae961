"""Inner values as the runtime computes them, with true values fed where the graph is cut."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.two_files import normal, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.runtime_probe import RuntimeProbe, open_probe
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import Refused
from onnxproof.numerics.sketch import distance, sketch
from onnxproof.system.deadline import Deadline
from onnxproof.testing import fake_backend

X = normal(4, 6)


def model(factor: float) -> onnx.ModelProto:
    """No inference tells the dtype behind an operator of the runtime's own; a Cast does."""
    nodes = [
        helper.make_node("Constant", [], ["factor"], "constant", value_float=factor),
        helper.make_node("SampleOp", ["x"], ["s"], "sample", domain="com.microsoft"),
        helper.make_node("Cast", ["s"], ["c"], "typed", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["c", "factor"], ["m"], "scale"),
        helper.make_node("Cast", ["m"], ["h"], "narrow", to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["h"], ["w"], "widen", to=TensorProto.FLOAT),
        helper.make_node("Neg", ["w"], ["y"], "minus"),
    ]
    built = graph_model(nodes, {"x": X})
    built.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return built


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return scene_between(tmp_path, model(2.0), model(3.0), {"x": X})


def halved(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float16).astype(np.float32)


def test_every_value_but_the_constants_is_sketched(scene: Scene) -> None:
    seen, outputs = RuntimeProbe(scene).observed({"x": X}, {}, sketching=True)
    assert sorted(seen) == ["c", "h", "m", "s", "w", "y"]
    assert distance(seen["m"], sketch(X * np.float32(3))) < 1e-7
    np.testing.assert_array_equal(outputs[0], -halved(X * np.float32(3)))


def test_without_sketching_only_the_outputs_are_computed(scene: Scene) -> None:
    seen, outputs = RuntimeProbe(scene).observed({"x": X}, {}, sketching=False)
    assert seen == {} and outputs[0].shape == X.shape


def test_a_true_value_is_fed_where_the_graph_is_cut(scene: Scene) -> None:
    true = {"m": X.astype(np.float64) * 2}
    _, outputs = RuntimeProbe(scene).observed({"x": X}, true, sketching=False)
    np.testing.assert_array_equal(outputs[0], -halved(X * np.float32(2)))


def test_a_true_value_takes_the_dtype_that_the_graph_has_at_its_place(scene: Scene) -> None:
    true = {"h": X.astype(np.float64) * 2}
    _, outputs = RuntimeProbe(scene).observed({"x": X}, true, sketching=False)
    np.testing.assert_array_equal(outputs[0], -halved(X * np.float32(2)))


def test_behind_a_cut_the_new_values_are_sketched_and_the_others_stay_as_they_were(
    scene: Scene,
) -> None:
    probe = RuntimeProbe(scene)
    before, _ = probe.observed({"x": X}, {}, sketching=True)
    after, _ = probe.observed({"x": X}, {"m": X * np.float32(2)}, sketching=True)
    assert after["s"] is before["s"]
    assert distance(after["w"], sketch(halved(X * np.float32(2)))) < 1e-7
    assert distance(before["w"], sketch(halved(X * np.float32(3)))) < 1e-7


def test_after_the_deadline_nothing_more_is_sketched(scene: Scene) -> None:
    late = RuntimeProbe(replace(scene, deadline=Deadline.after(0.0)))
    seen, outputs = late.observed({"x": X}, {}, sketching=True)
    assert seen == {} and len(outputs) == 1


def test_a_runtime_that_does_not_give_every_output_is_refused(scene: Scene) -> None:
    def nothing(session: object, inputs: object) -> list[np.ndarray]:
        raise Refused("runtime-refused", "not today")

    with (
        fake_backend("silent", nothing),
        pytest.raises(Refused, match="does not give every output"),
    ):
        RuntimeProbe(replace(scene, backend="silent")).observed({"x": X}, {}, sketching=False)


def test_the_probe_is_open_for_a_file_that_can_be_read(scene: Scene) -> None:
    probe = open_probe(scene)
    assert probe is not None and list(probe.output_names) == ["y"]
