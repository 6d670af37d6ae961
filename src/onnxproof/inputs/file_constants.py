"""The numbers that a graph decides by: its small constants, what it compares values with, the keys of its encoders."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, walk

Array = np.ndarray[Any, Any]
_COMPARES = frozenset(
    {"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "Clip", "Max", "Min"}
)
"""Operators that compare a value with a constant."""
_MOST_BOUNDS = 4096
"""Elements of a constant that values are compared with, and bounds in all (not measured)."""
_MOST_CONSTANTS = 16
"""Elements of a constant that may be a threshold; a larger one is a weight (not measured)."""
_KEYS = ("keys_", "cats_", "pool_")
"""Attributes of encoders that hold what is looked up."""


def small_constants(file: OnnxFile) -> tuple[float, ...]:
    """The values of the graph's small constants: thresholds and bounds are among them; and the keys of its encoders."""
    arrays = [array for array in constants(file).values() if array.size <= _MOST_CONSTANTS]
    return distinct_numbers([*arrays, *_encoder_keys(file)])


def bounds(file: OnnxFile) -> tuple[float, ...]:
    """What values are compared with, also where there is a whole table of it: the splits of a forest."""
    known = constants(file, largest=_MOST_BOUNDS)
    compared: list[Array] = []
    splits: list[Array] = []
    for node in walk(file.model):
        if node.op_type in _COMPARES:
            compared += [known[name] for name in node.input if name in known]
        if node.op_type.startswith("TreeEnsemble"):
            values = [a.floats for a in node.attribute if a.name == "nodes_values"]
            splits += [np.asarray(floats) for floats in values]
    return distinct_numbers([*compared, *splits])[:_MOST_BOUNDS]


def _encoder_keys(file: OnnxFile) -> Iterator[Array]:
    """The numbers that encoders know; their strings are `texts.file_texts`."""
    for node in walk(file.model):
        for attribute in node.attribute:
            if node.domain and attribute.name.startswith(_KEYS):
                numbers = [*attribute.ints, *attribute.floats]
                yield np.asarray(numbers[:_MOST_BOUNDS], np.float64)


def distinct_numbers(arrays: Iterable[Array]) -> tuple[float, ...]:
    """Every finite number of these arrays once, in their order."""
    values: dict[float, None] = {}
    for array in arrays:
        if array.dtype.kind in "fiu":
            numbers = [float(value) for value in array.reshape(-1)]
            values.update(dict.fromkeys(v for v in numbers if np.isfinite(v)))
    return tuple(values)
