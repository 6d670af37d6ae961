"""One tensor among the inputs or outputs of a reference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One tensor of the reference, by its path in the example."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def leaves_of(arrays: Iterable[tuple[str, Array]]) -> list[Leaf]:
    """The leaves that describe these named arrays."""
    return [Leaf(name=name, dtype=_dtype(array), shape=array.shape) for name, array in arrays]


def _dtype(array: Array) -> str:
    """Its name; strings are `str`, however long the longest of them is."""
    if array.dtype.kind == "U":
        return "str"
    return str(array.dtype)


def drop_missing(outputs: Sequence[Array | None]) -> list[Array]:
    """The outputs that are there: a session gives None for one that the model leaves out."""
    return [output for output in outputs if output is not None]
