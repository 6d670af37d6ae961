"""The user's own inputs, and the same moved by a little."""

import itertools
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Inputs, Space, as_dtype
from onnxproof.results import Case

_MOST = 64
"""Items of the data that become cases (not measured)."""
_MOVED = 1e-3
"""Of the spread of the values: how far floats are moved (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """Each item as it is; every fourth also with its floats moved by a thousandth of their spread."""
    for index, (label, arrays) in enumerate(itertools.islice(space.data, _MOST)):
        inputs = {slot.name: as_dtype(arrays[slot.name], slot.dtype) for slot in space.slots}
        yield Case(
            name=f"data-{label}",
            group="data",
            about=f"your data: {label}",
            inputs=inputs,
            ordinary=True,
        )
        if space.real_floats() and index % 4 == 0:
            yield Case(
                name=f"data-{label}-moved",
                group="data",
                about=f"your data, moved by 0.1 %: {label}",
                inputs=_move_floats(space, inputs, space.rng(f"data-{label}")),
                ordinary=True,
            )


def _move_floats(space: Space, inputs: Inputs, rng: np.random.Generator) -> dict[str, Array]:
    moved = dict(inputs)
    for slot in space.real_floats():
        array = inputs[slot.name].astype(np.float64)
        step = _MOVED * array.std() * rng.standard_normal(array.shape)
        moved[slot.name] = as_dtype(array + step, slot.dtype)
    return moved
