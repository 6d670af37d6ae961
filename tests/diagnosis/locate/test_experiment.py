"""The file evaluated with other values in place: what follows from them, and which of them fix the outputs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.two_files import experiment_on, first_round, normal, place_of, scene_between
from support.workbenches import graph_model

from onnxproof.diagnosis.locate.experiment import Experiment, first_fix, observe, reshape_like
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.sketch import Sketch
from onnxproof.runtimes import reference as standard

X = normal(4, 6)


def scaled(factor: float) -> onnx.ModelProto:
    """tanh(x) * factor + x."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "tanh"),
        helper.make_node("Mul", ["t", "factor"], ["m"], "scale"),
        helper.make_node("Add", ["m", "x"], ["y"], "add"),
    ]
    return graph_model(nodes, {"x": X}, {"factor": np.float32(factor).reshape(())})


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """The factor should be 2 and is 3."""
    return experiment_on(scene_between(tmp_path, scaled(2), scaled(3), {"x": X}))


def test_every_value_is_sketched_and_the_outputs_are_in_float64(experiment: Experiment) -> None:
    sketches, outputs = observe(experiment.session, experiment.feeds)
    assert list(sketches) == ["t", "m", "y"]
    wide = X.astype(np.float64)
    np.testing.assert_allclose(outputs[0], np.tanh(wide) * 3 + wide, rtol=1e-12)


def test_a_replacement_goes_on_to_what_follows_and_is_gone_afterwards(
    experiment: Experiment,
) -> None:
    ones = {"m": np.ones(24)}
    sketches, outputs = observe(experiment.session, experiment.feeds, ones)
    np.testing.assert_allclose(outputs[0], X.astype(np.float64) + 1)
    assert sketches["m"].moments.extent == 0.0
    again = experiment.session.run(experiment.feeds)
    assert np.abs(again[0] - outputs[0]).max() > 0.1


def test_without_sketching_only_the_outputs_are_given(experiment: Experiment) -> None:
    sketches, outputs = observe(experiment.session, experiment.feeds, sketching=False)
    assert sketches == {} and outputs[0].shape == (4, 6)


def test_a_replacement_of_another_size_keeps_its_shape_and_any_other_is_reshaped() -> None:
    old, flat = np.zeros((2, 3)), np.arange(6, dtype=np.float32)
    assert reshape_like(old, np.ones(5)).shape == (5,)
    assert reshape_like(old, flat).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert reshape_like(old, flat).dtype == np.float32


def test_what_was_seen_before_a_refusal_is_kept(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"]),
        helper.make_node("Reshape", ["t", "shape"], ["r"]),
        helper.make_node("Neg", ["r"], ["y"]),
    ]
    model = graph_model(nodes, {"x": X}, {"shape": np.array([5, 5])})
    onnx.save(model, tmp_path / "m.onnx")
    seen: dict[str, Sketch] = {}
    with pytest.raises(OnnxproofError):
        observe(standard.open(tmp_path / "m.onnx", "float64"), {"x": X}, seen=seen)
    assert list(seen) == ["t"]


def test_the_error_is_that_of_the_outputs_with_the_values_in_place(experiment: Experiment) -> None:
    wide = X.astype(np.float64)
    true = np.tanh(wide) * 2 + wide
    expected = np.sqrt(np.mean(np.tanh(wide) ** 2) / np.mean(true**2))
    assert experiment.error() == pytest.approx(expected, rel=1e-9)
    assert experiment.error({"m": np.tanh(wide) * 2}) < 1e-12


def test_an_output_that_the_file_lacks_is_infinitely_wrong(experiment: Experiment) -> None:
    assert replace(experiment, output_places=[-1]).error() == float("inf")
    assert replace(experiment, output_places=[1]).error() == float("inf")


def test_a_file_that_refuses_is_infinitely_wrong(experiment: Experiment) -> None:
    assert replace(experiment, feeds={}).error() == float("inf")


def test_a_value_that_can_not_be_had_fixes_nothing(experiment: Experiment) -> None:
    product = next(value for value in experiment.traced if value.op == "Mul")
    assert experiment.error_with(product, "m", {}) < 1e-12
    without = replace(experiment, fetch=lambda place: None)
    assert without.error_with(product, "m", {}) == float("inf")


def test_the_first_node_that_a_true_value_fixes_is_confirmed(experiment: Experiment) -> None:
    current = first_round(experiment)
    scale, add = place_of(experiment, "scale"), place_of(experiment, "add")
    fix = first_fix(experiment, current, [scale, add], 12)
    assert fix is not None and fix.true_value is not None
    assert (fix.node, fix.true_value.op) == (scale, "Mul")
    assert fix.error < 1e-12
    assert current.truths == {scale: fix.true_value}


def test_no_more_options_are_tried_than_allowed(experiment: Experiment) -> None:
    current = first_round(experiment)
    assert first_fix(experiment, current, [place_of(experiment, "scale")], 0) is None
    assert current.truths == {}
