"""The constants of this very graph as inputs: on each bound, one step below it and one step above it."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Space
from onnxproof.results import Case

_MOST_CASES = 24
"""Constants that get a case of their own (not measured)."""
_MOST_CONSTANTS = 256
_LARGEST = 1e6
"""Constants beyond this are fill values of masks rather than thresholds (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """One case with what is compared with, two that mix all of a graph's small constants, then one for each of the first few."""
    if len(space.bounds) > 1 and space.real_floats():
        yield _compared(space)
    constants = _constants(space)
    if constants.size and (space.real_floats() or space.of_role(Role.INTEGER)):
        yield _mixed(space, "on and around", constants, _with_neighbours(constants))
        yield _mixed(space, "exactly on", constants, constants)
        smallest_first = constants[np.argsort(np.abs(constants), kind="stable")]
        for value in smallest_first[:_MOST_CASES]:
            yield _single(space, value)


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
