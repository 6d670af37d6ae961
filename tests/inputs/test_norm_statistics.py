"""What a BatchNorm of a file sees on data, in units of the statistics that it keeps from training."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxproof.inputs.norm_statistics import norms
from onnxproof.reference.subject import Subject

MEAN = np.array([1.0, -2.0, 0.5], np.float32)
VARIANCE = np.array([4.0, 9.0, 1.0], np.float32)


def subject_of(
    folder: Path, mean: Any = MEAN, variance: Any = VARIANCE, scale: float = 1.5
) -> Subject:
    """A file of one BatchNormalization over three channels."""
    parameters = {
        "scale": np.full(3, scale, np.float32),
        "bias": np.zeros(3, np.float32),
        "mean": np.asarray(mean, np.float32),
        "variance": np.asarray(variance, np.float32),
    }
    node = helper.make_node("BatchNormalization", ["x", *parameters], ["y"], name="norm")
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3, 8]) for name in ("x", "y")
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in parameters.items()]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], initializers)
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "m.onnx")
    return Subject(onnx=folder / "m.onnx")


def data(factor: float = 1.0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    units = rng.standard_normal((64, 3, 8))
    values = units * np.sqrt(VARIANCE)[None, :, None] + MEAN[None, :, None]
    return [{"x": (factor * values).astype(np.float32)}]


def test_data_of_training_s_kind_has_scale_one_and_no_shift(tmp_path: Path) -> None:
    (norm,) = norms(subject_of(tmp_path), None, data())  # type: ignore[arg-type]
    assert norm.name == "norm" and norm.samples == 64 and norm.channels == 3
    assert norm.scale == pytest.approx(1, abs=0.05) and norm.shift < 0.1 and norm.spread < 0.1


def test_data_that_is_ten_times_as_large_shows_in_the_scale(tmp_path: Path) -> None:
    (norm,) = norms(subject_of(tmp_path), None, data(10))  # type: ignore[arg-type]
    assert norm.scale == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize(
    "other",
    [
        {"mean": [0, 0, 0], "variance": [1, 1, 1]},
        {"scale": 1.0},
        {"variance": [1, -1, 1]},
        {"mean": [np.nan, 0, 0]},
    ],
    ids=["defaults", "default weights", "negative variance", "not finite"],
)
def test_statistics_that_come_from_no_training_are_not_asked(tmp_path: Path, other: Any) -> None:
    assert norms(subject_of(tmp_path, **other), None, data()) == []  # type: ignore[arg-type]


def test_without_data_nothing_is_said(tmp_path: Path) -> None:
    assert norms(subject_of(tmp_path), None, []) == []  # type: ignore[arg-type]
