"""Distances between two outputs, on hand-made arrays."""

import numpy as np
import pytest

from onnxproof.reference import differences
from onnxproof.reference.perturbation import move_by_ulp

X = np.array([1.0, 2.0, 4.0], np.float32)


def test_the_distance_is_an_rms_over_what_is_finite() -> None:
    assert differences.distance(X, X) == 0.0
    other = np.array([1.0, np.nan, 7.0], np.float32)
    assert differences.distance(X, other) == pytest.approx(np.sqrt(4.5))


def test_of_integers_it_is_the_share_that_differs() -> None:
    ids = np.array([1, 2, 3, 4])
    assert differences.distance(ids, np.array([1, 2, 0, 4])) == 0.25
    assert differences.distance(ids[:0], ids[:0]) == 0.0


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (X + np.float32(1e-6), True),
        (X + np.float32(1e-2), False),
        (X.astype(np.float64), False),
        (X[:2], False),
        (None, False),
    ],
)
def test_runs_may_differ_by_the_order_of_a_sum(other: np.ndarray | None, alike: bool) -> None:  # type: ignore[type-arg]
    assert differences.alike(X, other) is alike


def test_numbers_that_the_truth_lost_are_counted() -> None:
    assert differences.lost_share(X, np.array([1.0, np.inf, np.nan])) == pytest.approx(2 / 3)
    assert differences.lost_share(X[:0], X[:0]) == 0.0


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (None, "has another shape then, or none"),
        (np.array([np.nan] * 3), "100% of it is not finite in the second"),
        (X + 1, "differs by 1 (rms), 0.38 of its own size"),
    ],
)
def test_a_difference_in_words(other: np.ndarray | None, words: str) -> None:  # type: ignore[type-arg]
    assert differences.describe_difference(X, other) == words


def test_floats_move_by_one_step_and_integers_stay() -> None:
    moved = move_by_ulp({"x": np.array([0.0, 1.0, np.inf], np.float32), "ids": np.array([7])}, 0)
    step = np.finfo(np.float32).eps
    assert moved["x"][0] == 0.0 and np.isinf(moved["x"][2]) and moved["ids"].tolist() == [7]
    assert abs(moved["x"][1] - 1.0) == pytest.approx(step, rel=0.51)
