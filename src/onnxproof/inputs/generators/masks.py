"""Masks: all true, all false, one row false, padded left and right, ragged, inverted, one element true."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from onnxproof.inputs.space import Array, Role, Shape, Slot, Space
from onnxproof.results import Case, Domain


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows of a mask, which run along the last axis."""

    count: int
    width: int
    lengths: Array
    """A random length for each row, in a column."""
    rng: np.random.Generator

    @property
    def places(self) -> Array:
        """The places of one row."""
        return np.arange(self.width)

    @property
    def numbers(self) -> Array:
        """The number of each row, in a column."""
        return np.arange(self.count)[:, None]


_ALL_FALSE = "all false"
_ONE_ROW_FALSE = "one row false"
_PATTERNS: Mapping[str, Callable[[_Rows], Array]] = {
    "all true": lambda rows: rows.places >= 0,
    _ALL_FALSE: lambda rows: rows.places < 0,
    _ONE_ROW_FALSE: lambda rows: rows.numbers < rows.count - 1,
    "left-padded": lambda rows: rows.places >= rows.width - rows.lengths,
    "right-padded": lambda rows: rows.places < rows.lengths,
    "ragged": lambda rows: rows.rng.random((rows.count, rows.width)) < 0.5,
    "one true": lambda rows: rows.places == rows.lengths - 1,
    "first true": lambda rows: rows.places == 0,
    "last true": lambda rows: rows.places == rows.width - 1,
    "lower triangle": lambda rows: rows.places <= rows.numbers % rows.width,
}
"""Where a mask is true."""
_HIDE_ALL = (_ALL_FALSE, _ONE_ROW_FALSE)
"""Patterns in which a row has nothing to see."""


def generate(space: Space) -> Iterator[Case]:
    """Each pattern for each mask, the other inputs ordinary; then all masks together."""
    additive = [slot for slot in space.of_role(Role.FLOAT) if slot.additive]
    slots = space.of_role(Role.MASK) + additive
    sizes = space.roomy()
    for label in _PATTERNS:
        if label in _HIDE_ALL and Domain.MASKED not in space.domains:
            continue
        for slot in slots:
            name = f"mask-{slot.name}-{label}"
            masks = {slot.name: _mask(space, slot, label, name)}
            yield space.case(name, "masks", f"{slot.name}: {label}", sizes, replace=masks)
        if len(slots) > 1:
            name = f"masks-{label}"
            masks = {slot.name: _mask(space, slot, label, name) for slot in slots}
            yield space.case(name, "masks", f"every mask: {label}", sizes, replace=masks)


def _mask(
    space: Space,
    slot: Slot,
    label: str,
    case: str,
) -> Array:
    """True keeps and false hides: 1 and 0 for a mask, 0 and minus infinity for one that is added."""
    shape = space.shape(slot.info, space.roomy())
    mask = _pattern(label, shape, space.rng(case))
    if slot.additive:
        return np.where(mask, 0.0, -np.inf)
    return mask


def _pattern(
    label: str,
    shape: Shape,
    rng: np.random.Generator,
) -> Array:
    """A boolean array; rows run along the last axis."""
    if label == _ALL_FALSE:
        return np.zeros(shape, bool)
    if not shape or 0 in shape:
        return np.ones(shape, bool)
    width = shape[-1]
    count = int(np.prod(shape[:-1], dtype=np.int64))
    lengths = rng.integers(1, width + 1, (count, 1))
    rows = _Rows(count=count, width=width, lengths=lengths, rng=rng)
    mask = _PATTERNS[label](rows)
    return np.broadcast_to(mask, (count, width)).reshape(shape)
