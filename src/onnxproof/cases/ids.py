"""Ids into a table: the first, the last, the whole range, repeats, and order."""

from collections.abc import Iterator

import numpy as np

from onnxproof.cases._space import Array, Role, Slot, Space, upper
from onnxproof.types import Case

_KINDS = ("first", "last", "beyond the example", "whole range", "repeated", "duplicates", "ascending", "descending", "low", "negative")


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each input of ids; then all of them together."""
    slots = space.of_role(Role.IDS)
    sizes = space.roomy()
    for kind in _KINDS:
        for slot in slots:
            name = f"ids-{slot.name}-{kind}"
            array = _ids(kind, slot, space.shape(slot.info, sizes), upper(slot, sizes), space.rng(name))
            yield space.case(name, "ids", f"{slot.name}: {kind}", sizes, replace={slot.name: array}, exact=kind in ("duplicates", "repeated"))
        if len(slots) > 1:
            name = f"ids-{kind}"
            arrays = {s.name: _ids(kind, s, space.shape(s.info, sizes), upper(s, sizes), space.rng(name)) for s in slots}
            yield space.case(name, "ids", f"all ids: {kind}", sizes, replace=arrays)
    wide = space.sizes(**{dim.name: 4 * dim.example for dim in space.free_dims})
    if slots and wide != sizes and space.fits(wide):
        yield space.case("ids-many", "ids", "many more ids than the example has", wide)


def _ids(kind: str, slot: Slot, shape: tuple[int, ...], high: int, rng: np.random.Generator) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    seen = int(slot.example.max(initial=0))
    if kind == "first":
        return np.zeros(shape, np.int64)
    if kind == "last":
        return np.full(shape, high - 1)
    if kind == "beyond the example":
        return rng.integers(min(seen + 1, high - 1), max(high, min(seen + 1, high - 1) + 1), shape)
    if kind == "whole range":
        return (np.arange(count) * max(1, high // max(count, 1)) % max(high, 1)).reshape(shape)
    if kind == "repeated":
        return np.full(shape, int(rng.integers(0, max(high, 1))))
    if kind == "duplicates":
        return rng.integers(0, min(3, max(high, 1)), shape)
    if kind in ("ascending", "descending"):
        order = np.sort(rng.integers(0, max(high, 1), shape), axis=-1) if shape else rng.integers(0, max(high, 1), shape)
        return order if kind == "ascending" or not shape else order[..., ::-1]
    if kind == "low":
        return rng.integers(0, min(8, max(high, 1)), shape)
    return rng.integers(-max(high, 1), 0, shape)
