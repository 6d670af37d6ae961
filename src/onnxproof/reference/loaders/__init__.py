"""References that are no PyTorch module: one file a kind, and the file's name is its key.

A loader says whether an object is one of its kind, and opens it as an `ArrayModel`: named arrays in, anything nested out. Outsiders add one by an
entry point of the group `onnxproof.references`. An object that is in none of them and can be called is a plain `function`, which comes last.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onnxproof.inputs.decisions import NO_DECISIONS, Decisions
from onnxproof.registry import Registry
from onnxproof.results import Source

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
Step = tuple[str, Array] | tuple[str, Array, Source | None]
_LAST = ("estimator", "function")
"""Kinds that are told by their methods alone, after those that have classes of their own: a model of Keras has `fit` and `predict`, too."""


class ArrayModel(Protocol):
    """A model that answers to named arrays. What a kind can't do returns None, or nothing."""

    def call(self, inputs: Inputs) -> Any:
        """The answer: arrays, nested in dicts, lists and tuples, by the names of the outputs where it has some."""

    def call_wide(self, inputs: Inputs) -> Any:
        """The answer computed in float64, or None where that can't be asked for."""

    def moved(self, seed: int, amplitude: float) -> "ArrayModel | None":
        """The same model, each parameter off by up to so many units in the last place of float32; None where it has none that are known."""

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """The values on the way to the answer in float64, by the name of the part that gives them, and the line of Python where it is known."""

    def decisions(self) -> Decisions:
        """Where it decides."""

    def classes(self) -> list[Any]:
        """The classes that the columns of its scores belong to; empty where it has none."""


class Loader(Protocol):
    """What the file of a kind of reference defines."""

    def matches(self, thing: Any) -> bool:
        """Whether an object is of this kind; nothing heavy is imported to find out."""

    def open(self, thing: Any) -> ArrayModel:
        """The object as an array model."""


LOADERS: Registry[Loader] = Registry("reference", __name__, Loader, group="onnxproof.references")


def find(thing: Any) -> Loader | None:
    """The loader of an object, or None where no kind knows it."""
    names = sorted(LOADERS.names(), key=_order)
    for name in names:
        loader = LOADERS.load(name)
        if loader.matches(thing):
            return loader
    return None


def _order(name: str) -> int:
    return _LAST.index(name) + 1 if name in _LAST else 0


def is_special(thing: Any) -> bool:
    """Whether it is of a kind of its own: neither a PyTorch module nor a plain function."""
    loader = find(thing)
    return loader is not None and loader is not LOADERS.load(_LAST[-1])


class PlainModel:
    """What most kinds have in common: nothing is known of what is inside."""

    def call_wide(self, inputs: Inputs) -> Any:
        """None."""
        return None

    def moved(self, seed: int, amplitude: float) -> ArrayModel | None:
        """None."""
        return None

    def steps(self, inputs: Inputs) -> Sequence[Step]:
        """None are known."""
        return []

    def decisions(self) -> Decisions:
        """None are known."""
        return NO_DECISIONS

    def classes(self) -> list[Any]:
        """None are known."""
        return []


def widened(inputs: Inputs) -> dict[str, Array]:
    """Every float in float64, without changing a value."""
    wide = {}
    for name, array in inputs.items():
        is_narrow = array.dtype.kind == "f" and array.dtype.itemsize < 8
        wide[name] = array.astype(np.float64) if is_narrow else array
    return wide
