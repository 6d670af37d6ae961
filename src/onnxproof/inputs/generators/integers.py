"""Integers that are counted with: negative, zero, large, beyond 2**31, the ends of small types."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Shape, Space
from onnxproof.results import Case

_RANGES = {
    "zero": (0, 0),
    "small": (-4, 4),
    "negative": (-100, -1),
    "mixed signs": (-1000, 1000),
    "hundreds": (100, 999),
    "one": (1, 1),
    "beyond 2**31": (2**33, 2**40),
    "beyond 2**24": (2**24, 2**30),
    "beyond 2**53": (2**53, 2**55),
}
"""The smallest and the largest integer of each kind."""
_ENDS = "ends of the type"


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each input of integers; those with a table are tried too, since a modulo may stand before it."""
    sizes = space.roomy()
    slots = space.of_role(Role.INTEGER, Role.IDS)
    for kind in (*_RANGES, _ENDS):
        for slot in slots:
            if slot.role is Role.IDS and slot.high is not None and not kind.startswith("beyond"):
                continue
            name = f"integer-{slot.name}-{kind}"
            shape = space.shape(slot.info, sizes)
            array = _integers(kind, slot.dtype, shape, space.rng(name))
            if array is not None:
                yield space.case(
                    name,
                    "integers",
                    f"{slot.name}: {kind}",
                    sizes,
                    replace={slot.name: array},
                    exact=True,
                )


def _integers(
    kind: str,
    dtype: np.dtype,
    shape: Shape,
    rng: np.random.Generator,
) -> Array | None:
    """Integers of that kind, or None where the dtype has none."""
    ends = np.iinfo(dtype)
    if kind == _ENDS:
        if dtype.itemsize > 2:
            return None
        return rng.integers(ends.max - 3, ends.max, shape, endpoint=True)
    low = max(_RANGES[kind][0], ends.min)
    high = min(_RANGES[kind][1], ends.max)
    if low > high:
        return None
    return rng.integers(low, high, shape, endpoint=True)
