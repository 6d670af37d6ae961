"""Where a reference decides: read from an estimator, from a graph, or from what a module compares values with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Where a model decides: the values at which its answer jumps."""

    thresholds: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """By the place of the column, in the model's own precision, in the order of its trees; one that decides twice is there twice."""
    leaves: tuple[Mapping[int, tuple[float, float]], ...] = ()
    """The values that lead to each leaf of its trees: above the one bound, not above the other, by the place of the column."""
    missing: frozenset[int] = frozenset()
    """The columns for which it was taught where a missing value goes."""
    categories: Mapping[int, tuple[Any, ...]] = field(default_factory=dict)
    """What an encoder knows, by the place of the column."""
    texts: tuple[str, ...] = ()
    """Strings that it looks up or compares with, whatever the input."""
    constants: tuple[float, ...] = ()
    """Numbers that it compares values with: the file may have lost them."""


NO_DECISIONS = Decisions()
