"""The constants of this very graph as inputs: on each bound, one step below it and one step above it."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Role, Space
from onnxproof.results import Case

_MOST = 24


def generate(space: Space) -> Iterator[Case]:
    """One case with what is compared with, two that mix all of a graph's small constants, then one for each of the first few."""
    sizes = space.roomy()
    floats = [slot for slot in space.of_role(Role.FLOAT) if slot.dtype.kind != "c"]
    integers = space.of_role(Role.INTEGER)
    pool = np.array(
        sorted(
            {c for c in space.constants if abs(c) < 1e6}
            | {-c for c in space.constants if abs(c) < 1e6}
        )[:256]
    )
    if len(space.bounds) > 1 and floats:
        arrays = {
            s.name: space.rng("compared" + s.name).choice(space.bounds, space.shape(s.info, sizes))
            for s in floats
        }
        yield space.case(
            "constants-compared",
            "thresholds",
            "values exactly on what the graph compares with",
            sizes,
            replace=arrays,
            exact=True,
        )
    if not pool.size or not (floats or integers):
        return
    near = np.concatenate(
        [
            pool,
            np.nextafter(pool.astype(np.float32), np.float32(np.inf)),
            np.nextafter(pool.astype(np.float32), np.float32(-np.inf)),
        ]
    )
    for label, options in (("on and around", near), ("exactly on", pool)):
        name = f"constants-{label}"
        arrays = {
            s.name: space.rng(name + s.name).choice(options, space.shape(s.info, sizes))
            for s in floats
        }
        arrays |= {
            s.name: np.rint(space.rng(name + s.name).choice(pool, space.shape(s.info, sizes)))
            for s in integers
        }
        yield space.case(
            name,
            "thresholds",
            f"values {label} the graph's own constants",
            sizes,
            replace=arrays,
            exact=True,
        )
    for value in pool[np.argsort(np.abs(pool), kind="stable")][:_MOST]:
        arrays = {s.name: np.full(space.shape(s.info, sizes), value) for s in floats}
        yield space.case(
            f"constant={value:g}",
            "thresholds",
            f"every float at {value:g}, a constant of the graph",
            sizes,
            replace=arrays,
            exact=True,
        )
