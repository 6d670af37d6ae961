"""Which of the module's values a value of the file is, and when it is none of them."""

from typing import Any

import numpy as np
import pytest

from onnxproof.diagnosis.locate.match import Match, match, squeezed_shape
from onnxproof.numerics.sketch import sketch
from onnxproof.reference.traced_value import TracedValue

Array = np.ndarray[Any, Any]
TOLERANCE = 1e-6


def traced(*values: Array, outer: dict[int, int] | None = None) -> list[TracedValue]:
    """Traced values; `outer={0: 1}`: the first is an inner step of the second."""
    return [
        TracedValue(
            place=place,
            op="op",
            sketch=sketch(value),
            dtype=str(value.dtype),
            inputs=(),
            module="",
            source=None,
            outer=(outer or {}).get(place),
        )
        for place, value in enumerate(values)
    ]


def match_one(value: Array, reference: list[TracedValue]) -> Match:
    return match({"v": sketch(value)}, reference, TOLERANCE)["v"]


def place(found: Match) -> int:
    assert found.traced is not None
    return found.traced.place


@pytest.fixture
def value() -> Array:
    return np.random.default_rng(3).standard_normal((4, 6))


def test_a_value_of_another_size_has_no_match_and_is_never_right(value: Array) -> None:
    found = match_one(value, traced(value[:3]))
    assert found.traced is None and found.gap == float("inf")
    assert not found.is_right(1e30)


def test_the_nearest_of_several_wrong_ones_is_named_with_its_distance(value: Array) -> None:
    other = np.random.default_rng(4).standard_normal((4, 6))
    found = match_one(value * 1.1, traced(other, value, other * 2))
    assert place(found) == 1
    assert found.gap == pytest.approx(0.1 / 1.1, rel=0.5)
    assert not found.is_right(TOLERANCE) and found.is_right(0.2)


def test_of_equal_values_the_result_of_a_whole_operation_comes_before_an_inner_step(
    value: Array,
) -> None:
    reference = traced(value, value * (1 + 1e-7), outer={0: 1})
    found = match_one(value, reference)
    assert place(found) == 1
    assert found.gap == 0.0


def test_an_inner_step_is_the_match_where_there_is_nothing_else(value: Array) -> None:
    found = match_one(value, traced(value, value * 2, outer={0: 1}))
    assert (place(found), found.gap) == (0, 0.0)


def test_another_order_is_wrong_even_where_a_traced_value_of_another_shape_has_it(
    value: Array,
) -> None:
    """A reshape that was to read the transposed value: its elements in order are in the trace, but flat."""
    reordered = value.T.reshape(4, 6)
    flat = traced(value, value.T.reshape(24).copy())
    found = match_one(reordered, flat)
    assert place(found) == 0
    assert found.gap > 0.1 and found.same_layout
    in_shape = traced(value, reordered.copy())
    assert match_one(reordered, in_shape).is_right(TOLERANCE)


def test_dims_of_one_do_not_make_another_shape(value: Array) -> None:
    moved = np.roll(value, 1).reshape(1, 4, 1, 6)
    found = match_one(moved, traced(value))
    assert found.gap > 0.1 and found.same_layout
    assert match_one(value.reshape(1, 4, 1, 6), traced(value)).gap == 0.0
    assert squeezed_shape(sketch(value.reshape(1, 4, 1, 6))) == (4, 6)


def test_of_several_values_with_the_same_elements_the_last_one_is_meant(value: Array) -> None:
    reference = traced(value, np.roll(value, 5), np.ones((4, 6)))
    assert place(match_one(np.roll(value, 2), reference)) == 1


def test_a_transposed_value_of_integers_is_not_the_same() -> None:
    value = np.arange(1, 13).reshape(3, 4)
    found = match_one(value.T.copy(), traced(value))
    assert found.gap > 0.0 and found.same_layout
    assert not found.is_right(TOLERANCE)


def test_each_value_is_looked_for_among_those_of_its_own_size(value: Array) -> None:
    reference = traced(value, value[:2], value[:1])
    seen = {"half": sketch(value[:2]), "whole": sketch(value), "row": sketch(value[:1])}
    found = match(seen, reference, TOLERANCE)
    assert {name: place(m) for name, m in found.items()} == {"half": 1, "whole": 0, "row": 2}
