"""Weights of a few bits: read as ONNX Runtime reads them, and found again in the reference."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.block_files import block_model

from onnxproof.verification import block_reading, block_weights


@settings(max_examples=25, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(3, 70),
    block=st.sampled_from([16, 32]),
    zeros=st.booleans(),
    seed=st.integers(0, 999),
)
def test_a_weight_is_what_the_runtime_multiplies_by(
    rows: int, columns: int, block: int, zeros: bool, seed: int
) -> None:
    model, _ = block_model(rows, columns, block=block, zeros=zeros, seed=seed)
    (weight,) = block_reading.find(model)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (product,) = session.run(None, {"x": np.eye(columns, dtype=np.float32)})
    np.testing.assert_allclose(product.T, weight.floats, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(zeros=st.booleans(), seed=st.integers(0, 999))
def test_rounding_anew_is_as_near_as_half_a_step(zeros: bool, seed: int) -> None:
    model, plain = block_model(7, 48, block=16, zeros=zeros, seed=seed)
    (weight,) = block_reading.find(model)
    rounded = weight.rounded(plain)
    step = np.abs(plain).max() / 7
    assert np.abs(rounded - plain).max() <= step
    assert block_weights.relative_difference(rounded, plain) < 0.2


def test_joined_weights_are_found_row_by_row() -> None:
    model, plain = block_model(12, 32, block=16, zeros=False, seed=3)
    (weight,) = block_reading.find(model)
    floats = {"query": plain[:4], "key": plain[4:8], "value": np.ascontiguousarray(plain[8:].T)}
    (pieces,) = block_weights.find_origins([weight], floats).values()
    assert [(piece.name, piece.turned) for piece in pieces] == [
        ("query", False),
        ("key", False),
        ("value", True),
    ]


def test_a_weight_beyond_recognition_has_what_is_left() -> None:
    model, plain = block_model(8, 32, block=16, zeros=False, seed=3)
    other, other_plain = block_model(8, 32, block=16, zeros=False, seed=4, name="other")
    packed = onnx.numpy_helper.to_array(other.graph.initializer[0])
    damaged = onnx.numpy_helper.from_array(packed[::-1].copy(), other.graph.initializer[0].name)
    other.graph.initializer[0].CopyFrom(damaged)
    weights = [*block_reading.find(model), *block_reading.find(other)]
    origins = block_weights.find_origins(weights, {"a": plain, "b": other_plain})
    assert {name: [piece.name for piece in pieces] for name, pieces in origins.items()} == {
        "product": ["a"],
        "other": ["b"],
    }


def test_nothing_is_found_for_a_weight_of_another_shape() -> None:
    model, plain = block_model(8, 32, block=16, zeros=False, seed=3)
    assert block_weights.find_origins(block_reading.find(model), {"a": plain[:, :16]}) == {}


@pytest.mark.parametrize("block", [16, 32])
def test_the_last_block_may_be_short(block: int) -> None:
    model, plain = block_model(4, 40, block=block, zeros=True, seed=1)
    (weight,) = block_reading.find(model)
    assert weight.shape == plain.shape
    assert block_weights.relative_difference(weight.floats, plain) < 0.2
