"""Which matrix gets how many bits: from the fewest bytes on, always the step that saves most for its bytes.

Such a path jumps over a budget where its next step is a large matrix. For the bytes that are left, `spend` solves the choice itself: one form a matrix,
the least cost within the budget (the multiple-choice knapsack problem).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.quantization.blockwise.form import Form

_UNITS = 1 << 14
"""The most steps in which `_cheapest` counts bytes. Where the sizes' common divisor needs more, they are rounded up to a step, and `fill` spends what that leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One form of a matrix: its bytes, and what it is estimated to cost."""

    form: Form
    size: int
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A form for every matrix."""

    choices: Mapping[str, Choice]

    @property
    def size(self) -> int:
        """Bytes of all matrices."""
        return sum(choice.size for choice in self.choices.values())

    @property
    def cost(self) -> float:
        """As estimated: small changes add up."""
        return sum(choice.cost for choice in self.choices.values())

    @property
    def forms(self) -> dict[str, Form]:
        """By matrix."""
        return {name: choice.form for name, choice in self.choices.items()}


def efficient(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that are worth their bytes, smallest first: each step buys less for a byte than the one before."""
    hull: list[Choice] = []
    for choice in sorted(choices, key=lambda each: (each.size, each.cost)):
        if hull and choice.cost >= hull[-1].cost:
            continue
        while len(hull) > 1 and worth(hull[-1], choice) >= worth(hull[-2], hull[-1]):
            hull.pop()
        if hull and hull[-1].size == choice.size:
            continue
        hull.append(choice)
    return hull


def worth(before: Choice, after: Choice) -> float:
    """Cost that a byte more saves."""
    return (before.cost - after.cost) / max(after.size - before.size, 1)


def path(choices: Mapping[str, Sequence[Choice]]) -> list[Allocation]:
    """Every allocation from the smallest to the most exact, one matrix changed at a time."""
    hulls = {name: efficient(each) for name, each in choices.items()}
    current = {name: hull[0] for name, hull in hulls.items()}
    steps = [
        (-worth(before, after), name, after)
        for name, hull in hulls.items()
        for before, after in itertools.pairwise(hull)
    ]
    allocations = [Allocation(choices=dict(current))]
    for _, name, after in sorted(steps, key=lambda step: (step[0], step[1], step[2].size)):
        current[name] = after
        allocations.append(Allocation(choices=dict(current)))
    return allocations


def spend(choices: Mapping[str, Sequence[Choice]], start: Allocation, most: float) -> Allocation:
    """The least estimated cost found within `most` bytes; never more than that of `start`, which must fit."""
    found = [fill(start, choices, most)]
    cheapest = _cheapest(choices, most)
    if cheapest is not None:
        found.append(fill(cheapest, choices, most))
    return min(found, key=lambda each: (each.cost, each.size))


def fill(
    allocation: Allocation, choices: Mapping[str, Sequence[Choice]], most: float
) -> Allocation:
    """Further steps, the one that saves most for its bytes first, until none fits."""
    current = dict(allocation.choices)
    left = most - allocation.size
    while True:
        steps = [
            (-worth(current[name], after), name, after)
            for name in sorted(current)
            for after in choices[name]
            if after.cost < current[name].cost and after.size - current[name].size <= left
        ]
        if not steps:
            return Allocation(choices=current)
        _, name, after = min(steps, key=lambda step: (step[0], step[1], step[2].size))
        left -= after.size - current[name].size
        current[name] = after


def _cheapest(choices: Mapping[str, Sequence[Choice]], most: float) -> Allocation | None:
    """By dynamic programming over the matrices; None where not even the smallest forms fit."""
    divisor = math.gcd(*(choice.size for each in choices.values() for choice in each))
    unit = max(divisor, most / _UNITS)
    units = math.floor(most / unit)
    costs = np.zeros(units + 1)
    """The least for all matrices so far, by units that may be spent."""
    taken: list[tuple[str, np.ndarray[Any, Any]]] = []
    for name in sorted(choices):
        options = np.full((len(choices[name]), units + 1), np.inf)
        for row, choice in zip(options, choices[name], strict=True):
            needed = math.ceil(choice.size / unit)
            row[needed:] = costs[: max(units + 1 - needed, 0)] + choice.cost
        taken.append((name, options.argmin(axis=0)))
        costs = options.min(axis=0)
    if not np.isfinite(costs[-1]):
        return None
    chosen = {}
    for name, places in reversed(taken):
        chosen[name] = choices[name][int(places[units])]
        units -= math.ceil(chosen[name].size / unit)
    return Allocation(choices=chosen)
