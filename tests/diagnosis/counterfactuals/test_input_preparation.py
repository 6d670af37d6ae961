"""Preparations of inputs: on arrays, in words, and written into a graph."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxproof.diagnosis.counterfactuals.input_preparation import Port, Preparation, channel_axis

RNG = np.random.default_rng(0)
IMAGE = Port(name="x", onnx_name="x", kind="image", channels=3, axis=1)
PREPARATIONS = [
    Preparation(axis=1, order=(2, 1, 0)),
    Preparation(axis=1, factor=np.array([2.0, 1.0, 0.5]), shift=np.array([0.0, 1.0, 0.0])),
    Preparation(axis=1, layout=(0, 2, 3, 1)),
]


@pytest.mark.parametrize("preparation", PREPARATIONS)
def test_the_graph_does_what_the_array_shows(preparation: Preparation) -> None:
    image = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    shape = list(preparation.apply(image).shape)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    preparation.insert(model, IMAGE)
    declared = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert declared == list(image.shape)
    (output,) = ReferenceEvaluator(model).run(None, {"x": image})
    assert np.allclose(output, preparation.apply(image), atol=1e-6)


def test_a_preparation_is_described_in_words() -> None:
    assert [str(preparation) for preparation in PREPARATIONS] == [
        "with its channels in the order [2, 1, 0] (RGB and BGR)",
        "times [2, 1, 0.5] and plus [0, 1, 0]",
        "with its axes in the order [0, 2, 3, 1]",
    ]
    halved = Preparation(factor=np.full(3, 0.5), shift=np.zeros(3), about="twice the same norm")
    assert str(halved) == "times 0.5 (twice the same norm)"


def test_integers_stay_integers() -> None:
    shifted = Preparation(factor=np.ones(1), shift=np.array([-1.0]))
    assert shifted.apply(np.array([[1, 2]])).tolist() == [[0, 1]]
    assert shifted.apply(np.array([[1, 2]])).dtype == np.int64


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2, 3, 8, 8), 1),
        ((2, 8, 8, 3), 3),
        ((3, 8, 8), 0),
        ((3, 4, 4), None),
        ((2, 5, 8, 8), None),
        ((3, 8), None),
    ],
)
def test_channels_stand_behind_the_batch_or_last(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(shape) == axis
