"""Masks: all true, all false, one row false, padded left and right, ragged, inverted, one element true."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space
from onnxproof.results import Case, Domain


def generate(space: Space) -> Iterator[Case]:
    """Each pattern for each mask, the other inputs ordinary; then all masks together."""
    slots = space.of_role(Role.MASK) + [slot for slot in space.of_role(Role.FLOAT) if slot.additive]
    sizes = space.roomy()
    for label in [p for p in _PATTERNS if p not in _HIDE_ALL or Domain.MASKED in space.domains]:
        for slot in slots:
            name = f"mask-{slot.name}-{label}"
            array = _values(slot, _pattern(label, space.shape(slot.info, sizes), space.rng(name)))
            yield space.case(
                name, "masks", f"{slot.name}: {label}", sizes, replace={slot.name: array}
            )
        if len(slots) > 1:
            name = f"masks-{label}"
            arrays = {
                slot.name: _values(
                    slot, _pattern(label, space.shape(slot.info, sizes), space.rng(name))
                )
                for slot in slots
            }
            yield space.case(name, "masks", f"every mask: {label}", sizes, replace=arrays)


_PATTERNS = (
    "all true",
    "all false",
    "one row false",
    "left-padded",
    "right-padded",
    "ragged",
    "one true",
    "first true",
    "last true",
    "lower triangle",
)
_HIDE_ALL = ("all false", "one row false")
"""Patterns in which a row has nothing to see."""


def _values(slot: Slot, mask: Array) -> Array:
    """True keeps and false hides: 1 and 0 for a mask, 0 and minus infinity for one that is added."""
    return np.where(mask, 0.0, -np.inf) if slot.additive else mask


def _pattern(label: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """A boolean array; rows run along the last axis."""
    if label == "all false":
        return np.zeros(shape, bool)
    mask = np.ones(shape, bool)
    if label == "all true" or not shape or 0 in shape:
        return mask
    width = shape[-1]
    rows = mask.reshape(-1, width)
    places, lengths = np.arange(width), rng.integers(1, width + 1, (rows.shape[0], 1))
    if label == "one row false":
        rows[-1] = False
    elif label == "left-padded":
        rows[:] = places >= width - lengths
    elif label == "right-padded":
        rows[:] = places < lengths
    elif label == "ragged":
        rows[:] = rng.random(rows.shape) < 0.5
    elif label == "one true":
        rows[:] = places == lengths - 1
    elif label == "first true":
        rows[:] = places == 0
    elif label == "last true":
        rows[:] = places == width - 1
    elif label == "lower triangle":
        rows[:] = places <= (np.arange(rows.shape[0]) % width)[:, None]
    return rows.reshape(shape)
