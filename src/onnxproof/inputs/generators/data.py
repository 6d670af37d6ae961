"""The user's own inputs, and the same moved by a little."""

import itertools
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Role, Space, as_dtype
from onnxproof.results import Case

_MOST = 64


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
        floats = [
            slot for slot in space.slots if slot.role is Role.FLOAT and slot.dtype.kind != "c"
        ]
        if floats and index % 4 == 0:
            rng = space.rng(f"data-{label}")
            moved = dict(inputs)
            for slot in floats:
                array = inputs[slot.name].astype(np.float64)
                moved[slot.name] = as_dtype(
                    array + 1e-3 * array.std() * rng.standard_normal(array.shape), slot.dtype
                )
            yield Case(
                name=f"data-{label}-moved",
                group="data",
                about=f"your data, moved by 0.1 %: {label}",
                inputs=moved,
                ordinary=True,
            )
