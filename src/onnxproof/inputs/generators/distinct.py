"""Several inputs of one shape with clearly different values, so that a swap shows; and rows at other places in the batch."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Shape, Sizes, Slot, Space, upper
from onnxproof.results import Case


def generate(space: Space) -> Iterator[Case]:
    """Inputs distinguished by their level, and a batch whose rows repeat and are reversed."""
    sizes = space.roomy()
    kinds = Counter((space.shape(slot.info, sizes), slot.dtype) for slot in space.slots)
    if any(count > 1 for count in kinds.values()):
        for turn in (0, 1):
            yield space.case(
                f"distinct-{turn}",
                "distinct",
                "inputs of one shape, distinguished by their level",
                sizes,
                replace=_leveled_inputs(space, sizes, turn),
            )
    yield from _batch_orders(space, sizes)


def _leveled_inputs(
    space: Space,
    sizes: Sizes,
    turn: int,
) -> dict[str, Array]:
    """Every input at a level of its own; the levels move on by one input each turn."""
    arrays = {}
    for index, slot in enumerate(space.slots):
        level = (index + turn) % len(space.slots)
        rng = space.rng(f"distinct-{index}")
        shape = space.shape(slot.info, sizes)
        arrays[slot.name] = _values_at_level(slot, level, shape, rng, sizes)
    return arrays


def _values_at_level(
    slot: Slot,
    level: int,
    shape: Shape,
    rng: np.random.Generator,
    sizes: Sizes,
) -> Array:
    if slot.role is Role.FLOAT:
        return np.asarray((level + 1) * 1.5 + rng.standard_normal(shape) * 0.2)
    if slot.role is Role.MASK:
        positions = np.arange(int(np.prod(shape))).reshape(shape)
        return np.asarray((positions + level) % (2 + level) == 0)
    return np.full(shape, level) % max(upper(slot, sizes), 1)


def _batch_orders(space: Space, sizes: Sizes) -> Iterator[Case]:
    """The rows of a batch at other places."""
    batches = space.values("batch-order", sizes)
    arrays = {name: array for name, array in batches.items() if array.ndim}
    if all(array.shape[0] <= 1 for array in arrays.values()):
        return
    scalars = {name: array for name, array in batches.items() if not array.ndim}
    repeated = {}
    reversed_rows = {}
    for name, array in arrays.items():
        repeated[name] = np.repeat(array[:1], array.shape[0], axis=0)
        reversed_rows[name] = array[::-1]
    yield space.case(
        "batch-repeated",
        "distinct",
        "the first row at every place of the batch",
        sizes,
        replace={**scalars, **repeated},
        exact=True,
    )
    yield space.case(
        "batch-reversed",
        "distinct",
        "the rows in reverse order",
        sizes,
        replace={**scalars, **reversed_rows},
    )
