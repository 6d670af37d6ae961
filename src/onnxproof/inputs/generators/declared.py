"""Every value that the user declared for an input: each is tried, with ordinary values and at other sizes around it."""

import itertools
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.rules import Rule
from onnxproof.inputs.space import Array, Sizes, Slot, Space
from onnxproof.results import Case

_MOST_VALUES = 32
"""Declared values of one input that get cases of their own (not measured)."""
_SCALES = (1.0, 10.0, 0.1)


def generate(space: Space) -> Iterator[Case]:
    """The values of all inputs in turn, then the same with larger and smaller floats and another batch."""
    slots = {slot.name: slot for slot in space.slots}
    different = [space.roomy()]
    if space.sizes() != space.roomy():
        different.append(space.sizes())
    for scale, sizes in itertools.product(_SCALES, different):
        for name, rule in space.rules.inputs.items():
            slot = slots[name]
            for value in _values(rule):
                yield _case(space, slot, value, sizes, scale)


def _values(rule: Rule) -> list[float]:
    """The declared values, or the ends of the range."""
    if rule.values is not None:
        values = rule.values
        if rule.avoid is not None:
            values = values[~np.isin(values, rule.avoid)]
        return [value.item() for value in values[:_MOST_VALUES]]
    ends = (rule.low, rule.high)
    return [end for end in ends if np.isfinite(end)]


def _case(space: Space, slot: Slot, value: float, sizes: Sizes, scale: float) -> Case:
    """One value in the whole of an input; a dim that is computed by the input follows."""
    name = f"{slot.name}={value:g}"
    if scale != 1:
        name += f", floats x {scale:g}"
    if sizes != space.roomy():
        name += ", the example's sizes"
    replaced: dict[str, Array] = {}
    if slot.name in space.deciding:
        batches = {dim.name: sizes[dim.name] for dim in space.free_dims}
        sizes = space.sizes(**{**batches, slot.name: int(value)})
    else:
        replaced[slot.name] = np.full(space.shape(slot.info, sizes), value)
    return space.case(
        name,
        "declared",
        f"{slot.name} is {value:g}",
        sizes,
        replace=replaced,
        scale=scale,
        ordinary=scale == 1,
    )
