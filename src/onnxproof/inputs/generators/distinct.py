"""Several inputs of one shape with clearly different values, so that a swap shows; and rows at other places in the batch."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Role, Space, upper
from onnxproof.results import Case


def generate(space: Space) -> Iterator[Case]:
    """Inputs told apart by their level, and a batch whose rows repeat, turn round and move."""
    sizes = space.roomy()
    kinds = Counter((space.shape(s.info, sizes), s.dtype) for s in space.slots)
    if any(count > 1 for count in kinds.values()):
        for turn in (0, 1):
            arrays = {}
            for index, slot in enumerate(space.slots):
                shape, level = space.shape(slot.info, sizes), (index + turn) % len(space.slots)
                if slot.role is Role.FLOAT:
                    arrays[slot.name] = (level + 1) * 1.5 + space.rng(
                        f"distinct-{index}"
                    ).standard_normal(shape) * 0.2
                elif slot.role is Role.MASK:
                    arrays[slot.name] = (np.arange(int(np.prod(shape))).reshape(shape) + level) % (
                        2 + level
                    ) == 0
                else:
                    arrays[slot.name] = np.full(shape, level) % max(upper(slot, sizes), 1)
            yield space.case(
                f"distinct-{turn}",
                "distinct",
                "inputs of one shape, told apart by their level",
                sizes,
                replace=arrays,
            )
    base = space.values("batch-order", sizes)
    if any(a.ndim and a.shape[0] > 1 for a in base.values()):
        yield space.case(
            "batch-repeated",
            "distinct",
            "the first row at every place of the batch",
            sizes,
            replace={
                n: np.repeat(a[:1], a.shape[0], axis=0) if a.ndim else a for n, a in base.items()
            },
            exact=True,
        )
        yield space.case(
            "batch-reversed",
            "distinct",
            "the rows in reverse order",
            sizes,
            replace={n: a[::-1] if a.ndim else a for n, a in base.items()},
        )
