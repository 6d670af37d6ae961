"""A search that climbs towards disagreement: it mutates the cases that came nearest to an alarm and keeps what comes nearer.

A case that it yields is named by its mutations: `scale-10 + search-3 + search-17` is case `scale-10` after mutations 3 and 17, and each
mutation depends on its number and the seed alone. So any of them can be rebuilt from its name.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from onnxproof.inputs.space import Array, as_dtype, is_float
from onnxproof.results import Case

_STEP = " + search-"


def climb(
    starts: Sequence[tuple[float, Case]],
    seed: int,
) -> Generator[Case, float, None]:
    """Yields cases and is sent the score of each; deterministic for a seed."""
    rng = np.random.default_rng([seed, 7])
    pool = list(starts)
    step = 0
    while True:
        score, case = pool[int(rng.integers(0, len(pool)))]
        child = mutate(case, step, seed)
        child_score = yield child
        step += 1
        if child_score > score:
            pool.append((child_score, child))
            pool.sort(key=lambda pair: -pair[0])
            pool = pool[: len(starts)]


def origin(name: str) -> str:
    """The name of the case that the search started from; the name itself, if no search yielded it."""
    return name.partition(_STEP)[0]


def rebuild(case: Case, name: str, seed: int) -> Case:
    """A case that the search yielded, rebuilt from its origin."""
    for step in name.split(_STEP)[1:]:
        case = mutate(case, int(step), seed)
    return case


def mutate(case: Case, step: int, seed: int) -> Case:
    """One mutation of one input."""
    rng = np.random.default_rng([seed, 7, step])
    inputs: dict[str, Array] = dict(case.inputs)
    floats = [name for name, array in inputs.items() if is_float(array.dtype) and array.size]
    others = [name for name, array in inputs.items() if _is_permutable(array)]
    if floats:
        name = str(rng.choice(floats))
        inputs[name] = _mutate_float(inputs[name], rng)
    elif others:
        name = str(rng.choice(others))
        inputs[name] = rng.permuted(inputs[name], axis=-1)
    return replace(
        case,
        name=f"{case.name}{_STEP}{step}",
        group="search",
        about=f"found from {origin(case.name)}",
        inputs=inputs,
        ordinary=False,
        exact=False,
    )


def _is_permutable(array: Array) -> bool:
    """Integers and masks of more than one place a row."""
    return array.dtype.kind in "iub" and array.ndim > 0 and array.shape[-1] > 1


def _mutate_float(array: Array, rng: np.random.Generator) -> Array:
    """Scale, add noise, permute, shift, or set half of the elements to one of them."""
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        spread = float(np.nan_to_num(np.std(wide))) + 1e-12
    kind = int(rng.integers(0, 5))
    if kind == 0:
        wide = wide * 2.0 ** rng.integers(-1, 2)
    elif kind == 1:
        wide = wide + rng.standard_normal(wide.shape) * 0.1 * spread
    elif kind == 2:
        wide = rng.permuted(wide.reshape(-1)).reshape(wide.shape)
    elif kind == 3 and rng.random() < 0.5:
        wide = wide - wide.mean()
    elif kind == 3:
        wide = wide + rng.standard_normal() * spread
    else:
        kept = rng.random(wide.shape) < 0.5
        value = wide.reshape(-1)[int(rng.integers(0, wide.size))]
        wide = np.where(kept, wide, value)
    return as_dtype(wide, array.dtype)
