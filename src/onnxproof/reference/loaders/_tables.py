"""Where a fitted estimator decides: the splits and leaves of trees, and the categories of encoders."""

from collections import defaultdict
from typing import Any

import numpy as np

from onnxproof.inputs.decisions import Decisions
from onnxproof.reference.loaders._trees import Box, Tree, trees_of

_MOST_SPLITS = 16_384
"""Splits of one column that are kept (not measured)."""
_MOST_LEAVES = 6144
"""Leaves that get a row of their own: a row for one leaf reaches a leaf of every other tree, too (not measured)."""


def decisions(estimator: Any) -> Decisions:
    """Of the estimator, or of the first step of a pipeline: later steps see other values."""
    first = estimator
    for _, step in getattr(estimator, "steps", ())[:1]:
        first = step
    trees = trees_of(first)
    thresholds: dict[int, list[float]] = defaultdict(list)
    for tree in trees:
        for column, value in tree.splits():
            if len(thresholds[column]) < _MOST_SPLITS:
                thresholds[column].append(value)
    return Decisions(
        thresholds={column: tuple(values) for column, values in thresholds.items()},
        leaves=_leaves(trees),
        missing=_imputed(first).union(*(tree.missing for tree in trees)),
        categories=_categories(first),
    )


def _imputed(estimator: Any) -> frozenset[int]:
    """The columns that an imputer fills, where it takes NaN for missing."""
    statistics = getattr(estimator, "statistics_", None)
    marker = getattr(estimator, "missing_values", None)
    if statistics is None or not isinstance(marker, float) or marker == marker:
        return frozenset()
    return frozenset(range(len(statistics)))


def _leaves(trees: list[Tree]) -> tuple[Box, ...]:
    """Every leaf, or of very many some of every tree."""
    leaves = [leaf for tree in trees for leaf in tree.leaves() if leaf]
    if len(leaves) <= _MOST_LEAVES:
        return tuple(leaves)
    places = np.linspace(0, len(leaves) - 1, _MOST_LEAVES).astype(np.int64)
    return tuple(leaves[place] for place in places)


def count_trees(estimator: Any) -> int:
    """How many trees it sums up, inside of a pipeline too."""
    for _, step in getattr(estimator, "steps", ())[-1:]:
        return count_trees(step)
    return len(trees_of(estimator))


def _categories(estimator: Any) -> dict[int, tuple[Any, ...]]:
    """Of an encoder, by column; a ColumnTransformer says which columns its encoders see."""
    known = getattr(estimator, "categories_", None)
    if known is not None:
        return {place: tuple(values) for place, values in enumerate(known)}
    found: dict[int, tuple[Any, ...]] = {}
    names = list(getattr(estimator, "feature_names_in_", ()))
    for _, member, columns in getattr(estimator, "transformers_", ()):
        encoder = member
        for _, step in getattr(member, "steps", ()):
            encoder = step if hasattr(step, "categories_") else encoder
        for column, values in zip(columns, getattr(encoder, "categories_", ()), strict=False):
            place = names.index(column) if isinstance(column, str) else int(column)
            found[place] = tuple(values)
    return found
