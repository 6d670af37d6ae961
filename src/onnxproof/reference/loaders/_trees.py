"""The trees of a fitted model, as scikit-learn, LightGBM and XGBoost hold them, in one form."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Box = dict[int, tuple[float, float]]
_LEAF = -1
_UNKNOWN = -2
"""The column of a split that is no threshold (a set of categories): both sides are followed, and nothing is asked of the row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Nodes in the order in which converters write them: the root, its left side, its right side."""

    columns: list[int] = field(default_factory=list)
    """What a node splits by; negative for a leaf."""
    thresholds: list[float] = field(default_factory=list)
    """A row goes left where its value is not above this."""
    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    """Columns whose missing values were taught a side. scikit-learn sends them to the larger side where it saw none, and does not tell the two apart: not known."""

    def splits(self) -> Iterator[tuple[int, float]]:
        """The column and the threshold of every inner node."""
        for column, threshold in zip(self.columns, self.thresholds, strict=True):
            if column >= 0:
                yield column, threshold

    def leaves(self) -> Iterator[Box]:
        """For each leaf the values that lead to it: above the one bound, and not above the other, by column."""
        waiting: list[tuple[int, Box]] = [(0, {})] if self.columns else []
        while waiting:
            node, box = waiting.pop()
            column = self.columns[node]
            if column == _LEAF:
                yield box
                continue
            below, above = dict(box), dict(box)
            if column >= 0:
                low, high = box.get(column, (-np.inf, np.inf))
                below[column] = (low, min(high, self.thresholds[node]))
                above[column] = (max(low, self.thresholds[node]), high)
            waiting += [(self.right[node], above), (self.left[node], below)]


def trees_of(estimator: Any) -> list[Tree]:
    """Every tree of a model; none where it has none that are known."""
    if hasattr(estimator, "get_booster") or hasattr(estimator, "num_boosted_rounds"):
        return _of_xgboost(estimator)
    booster = getattr(estimator, "booster_", estimator)
    if hasattr(booster, "dump_model"):
        return _of_lightgbm(booster)
    return [*map(_of_arrays, _members(estimator)), *_of_histograms(estimator)]


def _members(estimator: Any) -> list[Any]:
    """scikit-learn's own trees: one, or those of a forest or a boosted model."""
    if hasattr(estimator, "tree_"):
        return [estimator.tree_]
    members = getattr(estimator, "estimators_", ())
    flat = members.reshape(-1).tolist() if hasattr(members, "reshape") else list(members)
    return [member.tree_ for member in flat if hasattr(member, "tree_")]


def _of_arrays(tree: Any) -> Tree:
    return Tree(
        columns=[column if column >= 0 else _LEAF for column in tree.feature.tolist()],
        thresholds=tree.threshold.tolist(),
        left=tree.children_left.tolist(),
        right=tree.children_right.tolist(),
    )


def _of_histograms(estimator: Any) -> Iterator[Tree]:
    """Of HistGradientBoosting, whose nodes are records."""
    for stage in getattr(estimator, "_predictors", ()):
        for predictor in stage:
            nodes = predictor.nodes
            columns = nodes["feature_idx"].astype(np.int64)
            columns = np.where(nodes["is_categorical"] != 0, _UNKNOWN, columns)
            yield Tree(
                columns=np.where(nodes["is_leaf"] != 0, _LEAF, columns).tolist(),
                thresholds=nodes["num_threshold"].tolist(),
                left=nodes["left"].tolist(),
                right=nodes["right"].tolist(),
            )


def _of_lightgbm(booster: Any) -> list[Tree]:
    """As the library itself tells them; a split by categories has a string in the place of its threshold."""

    def split(node: Mapping[str, Any]) -> _Split | None:
        if "threshold" not in node:
            return None
        is_number = isinstance(node["threshold"], float)
        column = int(node["split_feature"]) if is_number else _UNKNOWN
        threshold = node["threshold"] if is_number else 0.0
        return _Split(
            column=column,
            threshold=threshold,
            left=node["left_child"],
            right=node["right_child"],
            takes_missing=is_number and node.get("missing_type") == "NaN",
        )

    roots = [tree["tree_structure"] for tree in booster.dump_model()["tree_info"]]
    return [_of_records(root, split) for root in roots]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """An inner node of nested records."""

    column: int
    threshold: float
    left: Any
    right: Any
    takes_missing: bool


def _of_xgboost(estimator: Any) -> list[Tree]:
    """Of its own dump. XGBoost goes left below a float32: not above the float32 before it is the same."""
    booster = estimator.get_booster() if hasattr(estimator, "get_booster") else estimator
    names = list(booster.feature_names or ())

    def split(node: Mapping[str, Any]) -> _Split | None:
        if "children" not in node:
            return None
        children = {child["nodeid"]: child for child in node["children"]}
        condition = node["split_condition"]
        is_number = isinstance(condition, int | float)
        column = _column(str(node["split"]), names) if is_number else _UNKNOWN
        before = np.nextafter(np.float32(condition if is_number else 0), np.float32(-np.inf))
        return _Split(
            column=column,
            threshold=float(before),
            left=children[node["yes"]],
            right=children[node["no"]],
            takes_missing=is_number,
        )

    return [_of_records(json.loads(text), split) for text in booster.get_dump(dump_format="json")]


def _column(name: str, names: list[str]) -> int:
    if name in names:
        return names.index(name)
    return int(name.removeprefix("f"))


def _of_records(root: Any, split: Callable[[Mapping[str, Any]], _Split | None]) -> Tree:
    """A tree of nested records."""
    tree = Tree()

    def add(record: Mapping[str, Any]) -> int:
        place = len(tree.columns)
        parts = split(record)
        tree.columns.append(_LEAF if parts is None else parts.column)
        tree.thresholds.append(0.0 if parts is None else parts.threshold)
        tree.left.append(_LEAF)
        tree.right.append(_LEAF)
        if parts is not None:
            tree.left[place] = add(parts.left)
            tree.right[place] = add(parts.right)
            tree.missing.update({parts.column} if parts.takes_missing else ())
        return place

    add(root)
    return tree
