"""Masks: all true, all false, one row false, padded left and right, ragged, inverted, one element true."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space
from onnxproof.results import Case, Domain

Rows = Callable[[tuple[int, int], Array, np.random.Generator], Array]
"""A pattern: from the number and width of the rows, a random length for each of them and random numbers, where the mask is true."""
_ALL_TRUE = "all true"
_ALL_FALSE = "all false"
_ONE_ROW_FALSE = "one row false"
_PATTERNS: Mapping[str, Rows] = {
    _ALL_TRUE: lambda shape, lengths, rng: np.ones(shape, bool),
    _ALL_FALSE: lambda shape, lengths, rng: np.zeros(shape, bool),
    _ONE_ROW_FALSE: lambda shape, lengths, rng: np.arange(shape[0])[:, None] < shape[0] - 1,
    "left-padded": lambda shape, lengths, rng: np.arange(shape[1]) >= shape[1] - lengths,
    "right-padded": lambda shape, lengths, rng: np.arange(shape[1]) < lengths,
    "ragged": lambda shape, lengths, rng: rng.random(shape) < 0.5,
    "one true": lambda shape, lengths, rng: np.arange(shape[1]) == lengths - 1,
    "first true": lambda shape, lengths, rng: np.arange(shape[1]) == 0,
    "last true": lambda shape, lengths, rng: np.arange(shape[1]) == shape[1] - 1,
    "lower triangle": lambda shape, lengths, rng: (
        np.arange(shape[1]) <= (np.arange(shape[0]) % shape[1])[:, None]
    ),
}
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


def _mask(space: Space, slot: Slot, label: str, case: str) -> Array:
    """True keeps and false hides: 1 and 0 for a mask, 0 and minus infinity for one that is added."""
    shape = space.shape(slot.info, space.roomy())
    mask = _pattern(label, shape, space.rng(case))
    if slot.additive:
        return np.where(mask, 0.0, -np.inf)
    return mask


def _pattern(label: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A boolean array; rows run along the last axis."""
    if label == _ALL_FALSE:
        return np.zeros(shape, bool)
    if not shape or 0 in shape:
        return np.ones(shape, bool)
    width = shape[-1]
    rows = int(np.prod(shape[:-1], dtype=np.int64))
    lengths = rng.integers(1, width + 1, (rows, 1))
    mask = np.broadcast_to(_PATTERNS[label]((rows, width), lengths, rng), (rows, width))
    return mask.reshape(shape)
