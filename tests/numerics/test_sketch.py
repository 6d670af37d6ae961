"""Sketches measure distances: in the same order, in any order, of integers bit by bit, beside NaN and masks."""

import numpy as np
import pytest

from onnxproof.numerics.relative_error import relative_error
from onnxproof.numerics.sketch import KeptArrays, Pool, distance, sketch

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("kept", [None, KeptArrays()])
@pytest.mark.parametrize("size", [24, 5000])
def test_the_distance_is_about_the_relative_error(size: int, kept: KeptArrays | None) -> None:
    truth = RNG.standard_normal(size)
    other = truth + 1e-3 * RNG.standard_normal(size)
    measured = distance(sketch(truth, kept), sketch(other, kept))
    assert measured == pytest.approx(relative_error(other, truth), rel=1.0)
    assert distance(sketch(truth, kept), sketch(truth, kept)) == 0.0


@pytest.mark.parametrize("kept", [None, KeptArrays()])
def test_a_transposed_tensor_is_near_in_any_order_only(kept: KeptArrays | None) -> None:
    array = RNG.standard_normal((5, 7))
    one, other = sketch(array, kept), sketch(array.T.copy(), kept)
    assert distance(one, other) > 0.1
    assert distance(one, other, any_order=True) < 1e-12


def test_integers_beyond_float64_are_still_distinguished() -> None:
    one, other = np.array([2**53] * 9), np.array([2**53 + 1] + [2**53] * 8)
    assert distance(sketch(one), sketch(other)) >= 1e-3


@pytest.mark.parametrize("apart", [1, 512, 2**40])
def test_large_integers_that_differ_count_by_their_share(apart: int) -> None:
    """A relative error of 1e-16 would pass for rounding, and integers are not rounded."""
    truth = np.array([2**60 + 1, 5, -(2**60), 7])
    other = truth + np.array([apart, 0, 0, 0])
    assert 0.5 <= relative_error(other, truth) < 0.5 + 1e-5
    assert relative_error(truth, truth) == 0.0


def test_minus_infinity_and_the_lowest_float_are_the_same_mask() -> None:
    values = RNG.standard_normal(20)
    one, other = values.copy(), values.copy()
    one[3], other[3] = -np.inf, np.finfo(np.float32).min
    assert distance(sketch(one), sketch(other)) < 1e-12


def test_a_nan_counts() -> None:
    values = np.ones(16)
    spoiled = values.copy()
    spoiled[0] = np.nan
    assert distance(sketch(values), sketch(spoiled)) > 0.1


def test_constants_and_flags_are_not_informative() -> None:
    assert sketch(RNG.standard_normal(8)).informative
    assert not sketch(np.ones(8)).informative
    assert not sketch(np.arange(8)).informative
    assert not sketch(RNG.standard_normal(7)).informative


def test_a_pool_gives_every_distance_at_once() -> None:
    arrays = [RNG.standard_normal(12) for _ in range(3)]
    sketches = [sketch(array) for array in arrays]
    measured = Pool(sketches).distances(sketches[1])
    assert measured[1] == 0.0 and measured.tolist() == [distance(sketches[1], s) for s in sketches]


def test_arrays_are_kept_as_long_as_there_is_memory() -> None:
    memory = KeptArrays(most_bytes=100)
    assert memory.keep(np.zeros(10)) is not None
    assert memory.keep(np.zeros(10)) is None


def test_the_relative_error_of_what_is_not_finite_or_not_there() -> None:
    truth = np.array([1.0, np.nan, np.inf, 2.0])
    assert relative_error(truth.copy(), truth) == 0.0
    assert relative_error(None, truth) == float("inf")
    assert relative_error(truth[:2], truth) == float("inf")
    assert relative_error(np.array([1.0, 0.0, np.inf, 2.0]), truth) == pytest.approx(0.5)
    assert relative_error(np.array([3.0, 4.0]), np.zeros(2)) == pytest.approx(12.5**0.5)


def test_beside_a_mask_the_distance_of_nearly_equal_values_stays_small() -> None:
    """What is masked counts as a thousand times the rms, so that a limit which follows the rms would magnify a rounding."""
    values = np.random.default_rng(3).standard_normal(512)
    rounded = values * (1 + 1e-7)
    for array in (values, rounded):
        array[::3] = -3.4e38
    assert distance(sketch(values), sketch(rounded)) < 1e-6
    rounded[1] += 1.0
    assert distance(sketch(values), sketch(rounded)) > 1e-3


def test_masks_of_nothing_but_zero_and_infinity_are_told_apart() -> None:
    hidden = np.zeros((4, 6), np.float32)
    hidden[1:, 4:] = -np.inf
    lowest = np.where(np.isinf(hidden), np.finfo(np.float32).min, hidden)
    moved = np.roll(hidden, 1, axis=1)
    assert distance(sketch(hidden), sketch(lowest)) == 0
    for other in (moved, np.zeros_like(hidden), np.full_like(hidden, -np.inf), -hidden):
        assert distance(sketch(hidden), sketch(other)) > 1
