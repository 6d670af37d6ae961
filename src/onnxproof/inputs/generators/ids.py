"""Ids into a table: the first, the last, the whole range, repeats, and order."""

import itertools
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Shape, Slot, Space, upper
from onnxproof.results import Case

_KINDS = (
    "first",
    "last",
    "beyond the example",
    "whole range",
    "repeated",
    "duplicates",
    "ascending",
    "descending",
    "low",
    "negative",
)
_MOST_COLUMNS = 16
"""Columns of ids that are tried one by one (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each input of ids; then all of them together."""
    slots = space.of_role(Role.IDS)
    sizes = space.roomy()
    for kind in _KINDS:
        for slot in slots:
            name = f"ids-{slot.name}-{kind}"
            array = _ids(kind, space, slot, name)
            yield space.case(
                name,
                "ids",
                f"{slot.name}: {kind}",
                sizes,
                replace={slot.name: array},
                exact=kind in ("duplicates", "repeated"),
            )
        if len(slots) > 1:
            name = f"ids-{kind}"
            arrays = {slot.name: _ids(kind, space, slot, name) for slot in slots}
            yield space.case(name, "ids", f"all ids: {kind}", sizes, replace=arrays)
    yield from _columns(space, slots)
    yield from _differing_rows(space, slots)
    longer = {dim.name: 4 * dim.example for dim in space.free_dims}
    wide = space.sizes(**longer)
    if slots and wide != sizes and space.fits(wide):
        yield space.case("ids-many", "ids", "many more ids than the example has", wide)


def _columns(space: Space, slots: list[Slot]) -> Iterator[Case]:
    """Columns that look up tables of their own: each column through each table's whole range; what does not fit is refused."""
    sizes = space.roomy()
    for slot in slots:
        shape = space.shape(slot.info, sizes)
        has_columns = len(shape) >= 2 and isinstance(slot.info.dims[-1], int)
        if not has_columns or len(slot.tables) < 2 or shape[-1] > _MOST_COLUMNS:
            continue
        for column, rows in itertools.product(range(shape[-1]), slot.tables):
            name = f"ids-{slot.name}[{column}]-of-{rows}"
            ids = space.values(name, sizes)[slot.name]
            count = ids[..., column].size
            step = max(1, rows // count)
            descending = rows - 1 - np.arange(count) * step % rows
            ids[..., column] = descending.reshape(ids[..., column].shape)
            yield space.case(
                name,
                "ids",
                f"{slot.name}: column {column} through a table of {rows} rows",
                sizes,
                replace={slot.name: ids},
            )


def _differing_rows(space: Space, slots: list[Slot]) -> Iterator[Case]:
    """The rows in which a table of the file is not the module's, in every column that has them."""
    sizes = space.roomy()
    for slot in slots:
        shape = space.shape(slot.info, sizes)
        count = int(np.prod(shape, dtype=np.int64))
        if not slot.differing_rows or not count:
            continue
        rows = np.resize(np.array(slot.differing_rows), count).reshape(shape)
        yield space.case(
            f"ids-{slot.name}-other rows",
            "ids",
            f"{slot.name}: rows that the file's table has otherwise",
            sizes,
            replace={slot.name: rows},
        )
        if len(slot.tables) < 2 or shape[-1] > _MOST_COLUMNS:
            continue
        for column in range(shape[-1]):
            name = f"ids-{slot.name}[{column}]-other rows"
            ids = space.values(name, sizes)[slot.name]
            ids[..., column] = rows[..., column]
            yield space.case(
                name,
                "ids",
                f"{slot.name}: rows that the file's table has otherwise, in column {column}",
                sizes,
                replace={slot.name: ids},
            )


def _ids(kind: str, space: Space, slot: Slot, case: str) -> Array:
    """The ids of one input in one case."""
    sizes = space.roomy()
    shape = space.shape(slot.info, sizes)
    high = upper(slot, sizes)
    rng = space.rng(case)
    rows = max(high, 1)
    if kind == "first":
        return np.zeros(shape, np.int64)
    if kind == "last":
        return np.full(shape, high - 1)
    if kind == "beyond the example":
        low = min(int(slot.example.max(initial=0)) + 1, high - 1)
        return rng.integers(low, max(high, low + 1), shape)
    if kind == "whole range":
        count = int(np.prod(shape, dtype=np.int64))
        step = max(1, high // max(count, 1))
        return (np.arange(count) * step % rows).reshape(shape)
    if kind == "repeated":
        return np.full(shape, int(rng.integers(0, rows)))
    if kind == "duplicates":
        return rng.integers(0, min(3, rows), shape)
    if kind == "ascending":
        return _ascending(rows, shape, rng)
    if kind == "descending":
        ascending = np.atleast_1d(_ascending(rows, shape, rng))
        return ascending[..., ::-1].reshape(shape)
    if kind == "low":
        return rng.integers(0, min(8, rows), shape)
    return rng.integers(-rows, 0, shape)


def _ascending(
    rows: int,
    shape: Shape,
    rng: np.random.Generator,
) -> Array:
    ids = np.asarray(rng.integers(0, rows, shape))
    return np.sort(np.atleast_1d(ids), axis=-1).reshape(shape)
