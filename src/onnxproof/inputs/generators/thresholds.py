"""The constants of this very graph as inputs: on each bound, one step below it and one step above it."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Slot, Space
from onnxproof.results import Case

_MOST_CASES = 24
"""Constants that get a case of their own (not measured)."""
_MOST_COMPARED = 8
"""Cases, for each input, with what is compared with (not measured)."""
_EXACT = 2**53
"""From here on float64 has no place for every integer."""
_MOST_CONSTANTS = 256
_LARGEST = 1e6
"""Constants beyond this are fill values of masks rather than thresholds (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """What is compared with, two cases that mix all small constants, then one for each of the first few: those that are compared with first."""
    if len(space.bounds) > 1 and space.real_floats():
        yield _compared(space)
    for slot in space.of_role(Role.INTEGER):
        yield from _compared_integers(space, slot)
    constants = _constants(space)
    if constants.size and (space.real_floats() or space.of_role(Role.INTEGER)):
        yield _mixed(space, "on and around", constants, _with_neighbours(constants))
        yield _mixed(space, "exactly on", constants, constants)
        for value in _singles(space, constants):
            yield _single(space, value)


def _singles(space: Space, constants: Array) -> list[float]:
    """The constants that get a case of their own: what is compared with as it is, then all by their size."""
    compared = [value for value in space.bounds if abs(value) < _LARGEST][:_MOST_COMPARED]
    smallest_first = constants[np.argsort(np.abs(constants), kind="stable")]
    return list(dict.fromkeys([*compared, *map(float, smallest_first[:_MOST_CASES])]))


def _compared_integers(space: Space, slot: Slot) -> Iterator[Case]:
    """Every whole number that is compared with, and its neighbours, as many to a case as the input has elements."""
    whole = [int(value) for value in space.bounds if value.is_integer() and abs(value) < _EXACT]
    near = dict.fromkeys(value + step for value in whole for step in (0, 1, -1))
    limits = np.iinfo(slot.example.dtype)
    values = [value for value in near if limits.min <= value <= limits.max]
    sizes = space.roomy()
    shape = space.shape(slot.info, sizes)
    count = max(int(np.prod(shape, dtype=np.int64)), 1)
    for number in range(min(_MOST_COMPARED, -(-len(values) // count))):
        part = values[number * count : (number + 1) * count]
        yield space.case(
            f"integers-compared-{slot.name}-{number}",
            "thresholds",
            f"{slot.name}: whole numbers that are compared with, and their neighbours",
            sizes,
            replace={slot.name: np.resize(np.array(part), shape)},
            exact=True,
        )


def _constants(space: Space) -> Array:
    """The graph's small constants with either sign, sorted."""
    small = {value for value in space.constants if abs(value) < _LARGEST}
    negated = {-value for value in small}
    return np.array(sorted(small | negated)[:_MOST_CONSTANTS])


def _with_neighbours(values: Array) -> Array:
    """The values, then each of them one float32 step above, then one step below."""
    narrow = values.astype(np.float32)
    above = np.nextafter(narrow, np.float32(np.inf))
    below = np.nextafter(narrow, np.float32(-np.inf))
    return np.concatenate([values, above, below])


def _compared(space: Space) -> Case:
    sizes = space.roomy()
    arrays = {}
    for slot in space.real_floats():
        rng = space.rng("compared" + slot.name)
        shape = space.shape(slot.info, sizes)
        arrays[slot.name] = rng.choice(space.bounds, shape)
    return space.case(
        "constants-compared",
        "thresholds",
        "values exactly on what the graph compares with",
        sizes,
        replace=arrays,
        exact=True,
    )


def _mixed(
    space: Space,
    label: str,
    constants: Array,
    near: Array,
) -> Case:
    """Floats drawn from `near`, integers from the constants themselves."""
    name = f"constants-{label}"
    sizes = space.roomy()
    arrays = {}
    for slot in space.real_floats():
        shape = space.shape(slot.info, sizes)
        arrays[slot.name] = space.rng(name + slot.name).choice(near, shape)
    for slot in space.of_role(Role.INTEGER):
        shape = space.shape(slot.info, sizes)
        rng = space.rng(name + slot.name)
        arrays[slot.name] = np.rint(rng.choice(constants, shape))
    return space.case(
        name,
        "thresholds",
        f"values {label} the graph's own constants",
        sizes,
        replace=arrays,
        exact=True,
    )


def _single(space: Space, value: float) -> Case:
    sizes = space.roomy()
    arrays = {}
    for slot in space.real_floats():
        arrays[slot.name] = np.full(space.shape(slot.info, sizes), value)
    return space.case(
        f"constant={value:g}",
        "thresholds",
        f"every float at {value:g}, a constant of the graph",
        sizes,
        replace=arrays,
        exact=True,
    )
