"""Search an ordered list for neighbours that answer otherwise, trying few of its points.

1. The ends are tried. Where they agree there is nothing to search for, unless every point is to be tried.
2. Between two points that differ, the one in the middle is tried, until they are neighbours.
3. A middle that is like neither end has a change on both of its sides, and both are searched.

What lies between two points that agree is taken to agree: `every` tries it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Answers = TypeVar("Answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[Answers]):
    """The answers of all points that were tried by their place, and the places of neighbours that differ."""

    answers: dict[int, Answers]
    changes: tuple[tuple[int, int], ...]


def find_changes(
    points: Sequence[str],
    ask: Callable[[str], Answers],
    same: Callable[[Answers, Answers], bool],
    *,
    every: bool = False,
) -> Found[Answers]:
    """Every change that the tried points show, in order; neighbours are places that follow each other.

    >>> find_changes("abcdefgh", lambda letter: letter > "c", lambda one, other: one == other).changes
    ((2, 3),)
    """
    answers: dict[int, Answers] = {}

    def at(place: int) -> Answers:
        if place not in answers:
            answers[place] = ask(points[place])
        return answers[place]

    last = len(points) - 1
    spans = [(0, last)]
    if every:
        spans = [(place, place + 1) for place in range(last)]
    changes = []
    while spans:
        low, high = spans.pop()
        if same(at(low), at(high)):
            continue
        if high - low == 1:
            changes.append((low, high))
            continue
        middle = (low + high) // 2
        spans += [(low, middle), (middle, high)]
    return Found(answers=answers, changes=tuple(sorted(changes)))


def classes(answers: Sequence[Answers], same: Callable[[Answers, Answers], bool]) -> list[int]:
    """A number for each, the same for those that answer as the first of that number does.

    >>> classes([1.0, 1.1, 5.0, 1.0], lambda one, other: abs(one - other) < 1)
    [0, 0, 1, 0]
    """
    first: list[Answers] = []
    numbers = []
    for each in answers:
        known = (number for number, other in enumerate(first) if same(other, each))
        number = next(known, len(first))
        if number == len(first):
            first.append(each)
        numbers.append(number)
    return numbers
