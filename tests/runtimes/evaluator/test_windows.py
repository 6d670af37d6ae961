"""Where windows lie, by hand-counted examples."""

import numpy as np
import pytest

from onnxproof.runtimes.evaluator import attributes
from onnxproof.runtimes.evaluator.windows import WindowAttributes, along, split_total, windows_of


@pytest.mark.parametrize(
    ("options", "low", "high", "count"),
    [
        ({}, 0, 0, 3),
        ({"pads": [1, 1]}, 1, 1, 5),
        ({"pads": [1, 1], "auto_pad": "VALID"}, 0, 0, 3),
        ({"auto_pad": "SAME_UPPER", "strides": [2]}, 1, 1, 3),
        ({"auto_pad": "SAME_LOWER", "dilations": [2]}, 2, 2, 5),
        ({"strides": [2], "ceil_mode": 1, "pads": [0, 1]}, 0, 1, 3),
    ],
)
def test_windows_of_three_in_a_row_of_five(
    options: dict[str, object], low: int, high: int, count: int
) -> None:
    windows = windows_of([5], [3], attributes.read(WindowAttributes, options))
    assert (list(windows.low), list(windows.high), list(windows.counts)) == ([low], [high], [count])


def test_a_window_begins_inside_of_the_input() -> None:
    """Of 4 elements in steps of 3 a second window of 1 would begin behind the first two; one more would begin outside."""
    windows = windows_of([4], [1], WindowAttributes(strides=[3], ceil_mode=1, pads=[0, 3]))
    assert list(windows.counts) == [2]


def test_each_tap_reads_one_element_of_every_window() -> None:
    x = np.arange(5.0).reshape(1, 1, 5)
    windows = windows_of([5], [2], WindowAttributes(strides=[2], pads=[1, 0]))
    taps = {position: view.ravel().tolist() for position, view in windows.taps(windows.pad(x, -1))}
    assert taps == {(0,): [-1.0, 1.0, 3.0], (1,): [0.0, 2.0, 4.0]}
    assert windows.starts(0).tolist() == [-1, 1, 3]


def test_the_odd_element_of_padding_goes_behind_for_upper() -> None:
    assert split_total([3], "SAME_UPPER") == ([1], [2])
    assert split_total([3], "SAME_LOWER") == ([2], [1])


def test_attributes_that_a_dataclass_does_not_name_are_left_out() -> None:
    assert attributes.read(WindowAttributes, {"strides": [2], "group": 3}).strides == [2]


def test_a_vector_along_one_axis() -> None:
    assert along(np.arange(3), 1, 3).shape == (1, 3, 1)
