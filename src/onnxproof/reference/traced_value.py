"""A value that the reference computed on the way to its answer, whether the reference is a module or a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from onnxproof.numerics.sketch import Sketch
from onnxproof.results import Source

Array = np.ndarray[Any, Any]
Fetch = Callable[[int], Array | None]
"""Gives the value at a place in the list of traced values."""
_CACHE_BYTES = 64 << 20
"""Fetched values that are kept: a few of the size of usual activations. Not measured."""


@dataclass(slots=True, kw_only=True)
class TracedValue:
    """One result of one operation."""

    place: int
    """Its index in the list of traced values."""
    op: str
    sketch: Sketch
    dtype: str
    inputs: tuple[int, ...]
    """The places of the values that the operation read."""
    module: str
    source: Source | None
    arguments: dict[str, Any] = field(default_factory=dict)
    outer: int | None = None
    """For a step of a decomposed operation: the place of the whole operation's result."""
    call: int = -1
    """Which call of the forward pass computed it, counted from 0: the same in every pass that takes the same way."""


def caching_fetch(traced: Sequence[TracedValue], compute: Fetch) -> Fetch:
    """A fetch that takes values still held by their sketches, then from a cache, and else calls `compute`."""
    cache: dict[int, Array | None] = {}

    def fetch(place: int) -> Array | None:
        held = traced[place].sketch.kept if place < len(traced) else None
        if held is not None:
            return held
        if place in cache:
            return cache[place]
        value = compute(place)
        size = _size(value)
        if size + sum(_size(other) for other in cache.values()) > _CACHE_BYTES:
            cache.clear()
        if size <= _CACHE_BYTES:
            cache[place] = value
        return value

    return fetch


def _size(value: Array | None) -> int:
    """The bytes of a value."""
    return 0 if value is None else value.nbytes
