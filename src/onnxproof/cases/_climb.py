"""A search that climbs towards disagreement: it mutates the cases that came nearest to an alarm and keeps what comes nearer."""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from onnxproof.cases._space import Array, as_dtype, is_float
from onnxproof.types import Case


def climb(starts: Sequence[tuple[float, Case]], seed: int) -> Generator[Case, float, None]:
    """Yields cases and is sent the score of each; deterministic for a seed."""
    rng = np.random.default_rng([seed, 7])
    pool = list(starts)
    for step in range(10_000):
        score, case = pool[int(rng.integers(0, len(pool)))]
        child = _mutate(case, step, rng)
        found = yield child
        if found > score:
            pool = sorted([*pool, (found, child)], key=lambda pair: -pair[0])[: len(starts)]


def _mutate(case: Case, step: int, rng: np.random.Generator) -> Case:
    floats = [name for name, array in case.inputs.items() if is_float(array.dtype) and array.size]
    others = [name for name, array in case.inputs.items() if array.dtype.kind in "iub" and array.ndim and array.shape[-1] > 1]
    inputs: dict[str, Array] = dict(case.inputs)
    name = str(rng.choice(floats or others)) if floats or others else ""
    if name in floats:
        inputs[name] = _float(inputs[name], rng)
    elif name:
        inputs[name] = rng.permuted(inputs[name], axis=-1)
    origin = case.name.partition(" + ")[0]
    return replace(case, name=f"{origin} + search-{step}", group="search", about=f"found from {origin}", inputs=inputs, ordinary=False, exact=False)


def _float(array: Array, rng: np.random.Generator) -> Array:
    wide = array.astype(np.float64)
    kind = int(rng.integers(0, 5))
    if kind == 0:
        wide = wide * 2.0 ** rng.integers(-3, 4)
    elif kind == 1:
        wide = wide + rng.standard_normal(wide.shape) * 0.1 * (np.std(wide) + 1e-12)
    elif kind == 2:
        wide = rng.permuted(wide.reshape(-1)).reshape(wide.shape)
    elif kind == 3:
        wide = wide - wide.mean() if rng.random() < 0.5 else wide + rng.standard_normal() * (np.std(wide) + 1e-12)
    else:
        keep = rng.random(wide.shape) < 0.5
        wide = np.where(keep, wide, wide.reshape(-1)[int(rng.integers(0, wide.size))])
    return as_dtype(wide, array.dtype)
