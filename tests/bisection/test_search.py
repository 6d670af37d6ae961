"""The search between two ends: every change that the tried points show, with few trials."""

from hypothesis import given
from hypothesis import strategies as st

from onnxproof.bisection.result import Bisection, Point
from onnxproof.bisection.search import classes, find_changes


def _same(one: int, other: int) -> bool:
    return one == other


@given(st.integers(2, 200), st.data())
def test_one_change_is_found_in_logarithmic_time(count: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(1, count - 1))
    points = [str(place) for place in range(count)]
    found = find_changes(points, lambda point: int(int(point) >= step), _same)
    assert found.changes == ((step - 1, step),)
    assert len(found.answers) <= 2 + count.bit_length()


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30))
def test_what_is_called_a_change_is_one_and_trying_all_misses_none(answers: list[int]) -> None:
    points = [str(place) for place in range(len(answers))]

    def ask(point: str) -> int:
        return answers[int(point)]

    found = find_changes(points, ask, _same)
    assert all(high == low + 1 and answers[low] != answers[high] for low, high in found.changes)
    assert bool(found.changes) >= (answers[0] != answers[-1])
    every = find_changes(points, ask, _same, every=True)
    places = range(len(answers) - 1)
    expected = [(place, place + 1) for place in places if answers[place] != answers[place + 1]]
    assert list(every.changes) == expected and set(found.changes) <= set(expected)


def test_a_middle_like_neither_end_has_a_change_on_both_sides() -> None:
    answers = "aabbbccc"
    found = find_changes(list("01234567"), lambda point: answers[int(point)], lambda a, b: a == b)
    assert found.changes == ((1, 2), (4, 5))


def test_answers_that_come_back_are_told() -> None:
    numbers = classes(["a", "b", "a", "a"], lambda one, other: one == other)
    points = tuple(Point(name=str(k), answers=number) for k, number in enumerate(numbers))
    result = Bisection(subject="s", file="f", axis="x", points=points, available=(), changes=())
    assert numbers == [0, 1, 0, 0] and result.returns
    assert not Bisection(
        subject="s", file="f", axis="x", points=points[1:], available=(), changes=()
    ).returns
