"""An estimator: an object that was fitted and has `predict`, `predict_proba` or `transform`, as scikit-learn, LightGBM and XGBoost have it.

A classifier answers with its label and its probabilities, a regressor with a column, a transformer with its matrix: what converters write. One trained in
float64 is its own truth. Several inputs are the columns of a data frame, where the estimator was fitted on one.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from onnxproof.inputs.decisions import Decisions
from onnxproof.reference.loaders import (
    Array,
    ArrayModel,
    Inputs,
    PlainModel,
    Step,
    _tables,
    widened,
)

_METHODS = ("predict_proba", "predict", "transform")
_STEP = float(np.finfo(np.float32).eps) / 2
_MOST_DEEP = 8
"""Levels of estimators within estimators that are looked into (not measured)."""


def matches(thing: Any) -> bool:
    """Whether it has one of the methods, and is an object rather than a class or a module of PyTorch."""
    if isinstance(thing, type) or hasattr(thing, "forward"):
        return False
    is_fitted = hasattr(thing, "fit") or hasattr(thing, "feature_name")
    return is_fitted and any(callable(getattr(thing, name, None)) for name in _METHODS)


def open(thing: Any) -> ArrayModel:
    """The estimator as it is; it is never fitted."""
    return _Estimator(thing)


class _Estimator(PlainModel):
    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator

    def call(self, inputs: Inputs) -> Any:
        """Its answers by the names that converters give them."""
        table = _table(self._estimator, inputs)
        if hasattr(self._estimator, "predict_proba"):
            return {
                "label": np.asarray(self._estimator.predict(table)),
                "probabilities": np.asarray(self._estimator.predict_proba(table)),
            }
        if hasattr(self._estimator, "predict"):
            return {"variable": np.asarray(self._estimator.predict(table))}
        return {"variable": _dense(self._estimator.transform(table))}

    def call_wide(self, inputs: Inputs) -> Any:
        """The same with float64 in."""
        return self.call(widened(inputs))

    def moved(self, seed: int, amplitude: float) -> ArrayModel | None:
        """A copy with every float parameter off by a rounding to float32: what any conversion to float32 must cost."""
        moved = copy.deepcopy(self._estimator)
        rng = np.random.default_rng(seed)
        for owner, name, array in _parameters(moved, 0):
            step = amplitude * _STEP * rng.choice([-1.0, 1.0], array.shape)
            _set(owner, name, array * (1 + step))
        trees = _tables.count_trees(self._estimator)
        if not trees:
            return _Estimator(moved)
        return _RoundedSum(moved, rng, amplitude * _STEP * np.sqrt(trees))

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """What each step of a pipeline but the last gives, in float64; for a forest nothing."""
        values: list[Step] = []
        table = _table(self._estimator, widened(inputs))
        for name, step in list(getattr(self._estimator, "steps", ()))[:-1]:
            if step in (None, "passthrough"):
                continue
            table = step.transform(table)
            values.append((name, _dense(table)))
        return values

    def decisions(self) -> Decisions:
        """The splits of its trees and the categories of its encoders, where these see the inputs as they are."""
        return _tables.decisions(self._estimator)

    def classes(self) -> list[Any]:
        """As it was fitted with them."""
        return list(getattr(self._estimator, "classes_", ()))


class _RoundedSum(_Estimator):
    """An ensemble whose sum is rounded once a tree, as float32 does it: the roundings add up like the steps of a random walk."""

    def __init__(self, estimator: Any, rng: np.random.Generator, step: float) -> None:
        super().__init__(estimator)
        self._rng = rng
        self._step = step

    def call(self, inputs: Inputs) -> Any:
        """The answers, each number off by the rounding of its sum."""
        answers = super().call(inputs)
        for name, array in answers.items():
            if array.dtype.kind == "f":
                answers[name] = array * (1 + self._step * self._rng.standard_normal(array.shape))
        return answers


def _table(estimator: Any, inputs: Inputs) -> Any:
    """One matrix; several inputs are columns, of a data frame where the estimator knows names."""
    arrays = list(inputs.values())
    if len(arrays) == 1:
        return _column_names(estimator, arrays[0], list(inputs))
    columns = [array.reshape(len(array), -1) for array in arrays]
    if hasattr(estimator, "feature_names_in_"):
        import pandas

        return pandas.DataFrame(
            {name: column[:, 0] for name, column in zip(inputs, columns, strict=True)}
        )
    if len({column.dtype.kind for column in columns}) == 1:
        return np.concatenate(columns, axis=1)
    return np.concatenate([column.astype(object) for column in columns], axis=1)


def _column_names(estimator: Any, array: Array, names: list[str]) -> Any:
    """The matrix as the data frame that the estimator was fitted on, where it was one."""
    known = getattr(estimator, "feature_names_in_", None)
    if known is None or array.ndim != 2 or array.shape[1] != len(known):
        return array
    import pandas

    return pandas.DataFrame(array, columns=known)


def _dense(value: Any) -> Array:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


def _parameters(owner: Any, depth: int) -> Iterator[tuple[Any, Any, Array]]:
    """Every array of floats that an estimator holds, inside of others too; not the edges that decide."""
    if depth > _MOST_DEEP:
        return
    for name, value in _members(owner):
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            if "edge" not in str(name) and "threshold" not in str(name):
                yield owner, name, value
        elif isinstance(value, list | tuple | dict) or hasattr(value, "fit"):
            yield from _parameters(value, depth + 1)


def _members(owner: Any) -> list[tuple[Any, Any]]:
    if isinstance(owner, dict):
        return list(owner.items())
    if isinstance(owner, list | tuple):
        return list(enumerate(owner))
    return list(getattr(owner, "__dict__", {}).items())


def _set(owner: Any, name: Any, value: Array) -> None:
    if isinstance(owner, tuple):
        return
    if isinstance(owner, list | dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
