"""Masks among the inputs, and what they are when nobody applies them."""

import numpy as np
import pytest

from onnxproof.diagnosis.counterfactuals.mask_inputs import (
    fill_empty_rows,
    full_lengths,
    invert,
    is_mask,
    other_masks,
)

HIDDEN = -np.inf


@pytest.mark.parametrize(
    ("name", "array", "expected"),
    [
        ("x", np.array([True]), True),
        ("lengths", np.array([3]), True),
        ("lengths", np.array([[3]]), False),
        ("attention_mask", np.array([[1]]), True),
        ("bias", np.array([0.0, HIDDEN]), True),
        ("bias", np.array([0.0, 1.0]), False),
    ],
)
def test_masks_are_known_by_type_name_or_values(
    name: str, array: np.ndarray, expected: bool
) -> None:
    assert is_mask(name, array) is expected


def test_rows_that_hide_everything_are_opened() -> None:
    mask = np.array([[0, 0], [0, 1]])
    assert fill_empty_rows(mask).tolist() == [[1, 1], [0, 1]]
    added = np.array([[HIDDEN, HIDDEN], [0.0, HIDDEN]])
    assert fill_empty_rows(added).tolist() == [[0.0, 0.0], [0.0, HIDDEN]]


def test_masks_are_inverted_by_their_kind() -> None:
    assert invert(np.array([True, False])).tolist() == [False, True]
    assert invert(np.array([1, 0])).tolist() == [0, 1]
    assert invert(np.array([0.0, HIDDEN])).tolist() == [HIDDEN, 0.0]


def test_lengths_are_ignored_only_where_more_than_one_step_is_gained() -> None:
    lengths = np.array([2, 5])
    inputs = {"x": np.zeros((2, 5, 3)), "lengths": lengths}
    assert full_lengths(lengths, inputs).tolist() == [5, 5]
    assert full_lengths(np.array([4, 5]), inputs).tolist() == [4, 5]
    assert [what for what, _ in other_masks(lengths, inputs)] == ["ignored"]
    assert [what for what, _ in other_masks(np.ones((2, 5)), inputs)] == ["ignored", "inverted"]
