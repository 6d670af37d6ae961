"""What models of tables decide by: rows on the splits of the reference's own trees and in their leaves, and categories that its encoders know and don't know.

A split is a float64 in most libraries and a float32 in most files. So each is tried at the value itself, and at its neighbours in both precisions, as far as
the input's dtype holds them.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space, as_dtype
from onnxproof.results import Case

_MOST_ROWS = 512
"""Rows of one case (not measured)."""
_MOST_CASES = 12
_UNKNOWN = ("never-seen", "", " ", "ÄÖ")
"""Strings that no encoder was fitted with."""


def generate(space: Space) -> Iterator[Case]:
    """Splits, then leaves, then missing values, then categories."""
    yield from _splits(space)
    yield from _leaves(space)
    yield from _missing_values(space)
    for slot in space.of_role(Role.TEXT):
        yield from _categories(space, slot)


def _splits(space: Space) -> Iterator[Case]:
    """Rows that lie on the splits and beside them, each in one column, while the others stay ordinary."""
    points = [
        (column, value)
        for column, values in space.decisions.thresholds.items()
        for threshold in dict.fromkeys(values)
        for value in _around(threshold)
    ]
    order = space.rng("splits").permutation(len(points))
    points = [points[place] for place in order]
    yield from _in_cases(
        space, "splits", "rows on the splits of the reference", [dict([point]) for point in points]
    )


def _leaves(space: Space) -> Iterator[Case]:
    """Rows that reach every leaf of the reference's trees: a leaf that no row reaches may say anything."""
    leaves = space.decisions.leaves
    if not leaves:
        return
    order = space.rng("leaves").permutation(len(leaves))
    scales = _scales(space)
    rows = [_inside(leaves[place], scales) for place in order]
    yield from _in_cases(space, "leaves", "rows for the leaves of the reference", rows)


def _missing_values(space: Space) -> Iterator[Case]:
    """Rows with the value of one column missing, for leaves where there are some, where the reference was taught what that means: to it this is no odd value."""
    scales = _scales(space)
    missing = space.decisions.missing
    points = [
        {**_inside(leaf, scales), column: float("nan")}
        for leaf in space.decisions.leaves
        for column in leaf
        if column in missing
    ]
    points = points or [{column: float("nan")} for column in sorted(missing)]
    order = space.rng("missing").permutation(len(points))[:_MOST_ROWS]
    about = "rows with a missing value"
    yield from _in_cases(space, "missing", about, [points[place] for place in order])


def _scales(space: Space) -> dict[int, float]:
    """How far the example's values are spread, by column."""
    scales: dict[int, float] = {}
    offset = 0
    for slot in space.slots:
        width = int(np.prod(slot.example.shape[1:], dtype=np.int64)) if slot.example.ndim else 1
        if slot.role is Role.FLOAT and slot.example.ndim and slot.example.size:
            spread = slot.example.reshape(len(slot.example), -1).astype(np.float64).std(0)
            scales |= {offset + place: float(scale) for place, scale in enumerate(spread)}
        offset += width
    return scales


def _inside(
    leaf: Mapping[int, tuple[float, float]], scales: Mapping[int, float]
) -> dict[int, float]:
    """A point between the bounds; beside a single bound, a part of the column's own spread away from it."""
    point = {}
    for column, (low, high) in leaf.items():
        step = 0.1 * (scales.get(column, 0.0) or 1.0)
        if np.isfinite(low) and np.isfinite(high):
            point[column] = low + (high - low) / 2
        elif np.isfinite(low):
            point[column] = low + step
        else:
            point[column] = high - step
    return point


def _in_cases(
    space: Space, word: str, about: str, points: Sequence[Mapping[int, float]]
) -> Iterator[Case]:
    """Rows that are ordinary but for the columns of their points, as many in a case as it may have."""
    rows = _rows(space)
    if not rows:
        return
    for number in range(min(_MOST_CASES, -(-len(points) // rows))):
        part = points[number * rows : (number + 1) * rows]
        sizes = _sizes(space, len(part))
        name = f"{word}-{number}"
        arrays = _with_points(space, space.values(name, sizes), part)
        yield space.case(name, "thresholds", about, sizes, replace=arrays, exact=True)


def _around(threshold: float) -> list[float]:
    """The value, its neighbours in float64, and its neighbours in float32."""
    narrow = np.float32(threshold)
    return [
        threshold,
        float(np.nextafter(threshold, np.inf)),
        float(narrow),
        float(np.nextafter(narrow, np.float32(np.inf))),
        float(np.nextafter(narrow, np.float32(-np.inf))),
    ]


def _rows(space: Space) -> int:
    """As many rows as a case may have: the example's where the batch is fixed."""
    floats = [slot for slot in space.real_floats() if slot.info.dims]
    if not floats:
        return 0
    first = floats[0].info.dims[0]
    free = {dim.name: dim for dim in space.free_dims}
    if isinstance(first, str) and first in free:
        return min(_MOST_ROWS, free[first].maximum or _MOST_ROWS)
    return int(floats[0].example.shape[0])


def _sizes(space: Space, rows: int) -> dict[str, int]:
    """The example's sizes with so many rows, where that may vary."""
    floats = [slot for slot in space.real_floats() if slot.info.dims]
    first = floats[0].info.dims[0]
    if isinstance(first, str) and any(dim.name == first for dim in space.free_dims):
        return space.sizes(**{first: space.admitted(first, max(rows, 1))})
    return space.sizes()


def _with_points(
    space: Space, values: dict[str, Array], points: Sequence[Mapping[int, float]]
) -> dict[str, Array]:
    """The inputs with some columns of each row at its point: the columns of all inputs are counted together."""
    changed = {}
    offset = 0
    for slot in space.slots:
        array = np.array(values[slot.name])
        width = int(np.prod(array.shape[1:], dtype=np.int64)) if array.ndim else 1
        if slot.role is Role.FLOAT and array.ndim:
            flat = array.reshape(len(array), -1)
            for row, point in enumerate(points[: len(flat)]):
                for column, value in point.items():
                    if offset <= column < offset + width:
                        flat[row, column - offset] = as_dtype(np.asarray(value), array.dtype)
            changed[slot.name] = flat.reshape(array.shape)
        offset += width
    return changed


def _categories(space: Space, slot: Slot) -> Iterator[Case]:
    """Every known string once, then strings that nobody knows, beside one that is known."""
    sizes = space.roomy()
    shape = space.shape(slot.info, sizes)
    count = max(int(np.prod(shape, dtype=np.int64)), 1)
    for number in range(min(_MOST_CASES, -(-len(slot.texts) // count))):
        part = np.resize(np.array(slot.texts[number * count : (number + 1) * count]), shape)
        yield space.case(
            f"categories-{slot.name}-{number}",
            "categories",
            f"{slot.name}: the strings that are known",
            sizes,
            replace={slot.name: part},
        )
    changed = [text.swapcase() for text in slot.texts[:1]]
    for text in (*_UNKNOWN, *changed):
        array = np.full(shape, slot.texts[0], object)
        array.reshape(-1)[-1:] = text
        yield space.case(
            f"category-{slot.name}={text!r}",
            "categories",
            f"{slot.name}: a string that was never seen",
            sizes,
            replace={slot.name: array.astype(np.str_)},
        )
