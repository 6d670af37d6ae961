"""A value that the reference made on the way to its answer, whether the reference is a module or a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.numerics.sketch import Sketch
from onnxproof.results import Source

Array = np.ndarray[Any, Any]
Fetch = Callable[[int], Array | None]
"""The value of the entry at a place."""
_KEPT_BYTES = 64 << 20


@dataclass(slots=True, kw_only=True)
class Entry:
    """One result of one operation."""

    place: int
    op: str
    sketch: Sketch
    dtype: str
    inputs: tuple[int, ...]
    module: str
    source: Source | None
    arguments: dict[str, Any] = field(default_factory=dict)
    outer: int | None = None
    """Where it stems from taking an operation apart: the entry of that whole operation."""
    call: int = -1
    """Which call of the forward pass made it, counted from 0: the same in every pass that takes the same way."""


def remembering(entries: Sequence[Entry], again: Fetch) -> Fetch:
    """A way to have values: what still lies on the shelf first, else by running `again`; a few are kept, large ones are not."""
    kept: dict[int, Array | None] = {}

    def fetch(place: int) -> Array | None:
        if place < len(entries) and (held := entries[place].sketch.held) is not None:
            return held
        if place in kept:
            return kept[place]
        value = again(place)
        size = value.nbytes if value is not None else 0
        if size + sum(other.nbytes for other in kept.values() if other is not None) > _KEPT_BYTES:
            kept.clear()
        if size <= _KEPT_BYTES:
            kept[place] = value
        return value

    return fetch
