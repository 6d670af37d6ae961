"""A search that climbs towards disagreement: it mutates the cases that came nearest to an alarm and keeps what comes nearer.

A found case is named by its way: `scale-10 + search-3 + search-17` is case `scale-10` after mutations 3 and 17, and each
mutation depends on its number and the seed alone. So any of them can be made again from its name.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from onnxproof.inputs.space import Array, as_dtype, is_float
from onnxproof.results import Case

_STEP = " + search-"


def climb(starts: Sequence[tuple[float, Case]], seed: int) -> Generator[Case, float, None]:
    """Yields cases and is sent the score of each; deterministic for a seed."""
    rng = np.random.default_rng([seed, 7])
    pool = list(starts)
    step = 0
    while True:
        score, case = pool[int(rng.integers(0, len(pool)))]
        child = mutate(case, step, seed)
        found = yield child
        step += 1
        if found > score:
            pool = sorted([*pool, (found, child)], key=lambda pair: -pair[0])[: len(starts)]


def origin(name: str) -> str:
    """The case that a found one comes from: itself, if it was not found by search."""
    return name.partition(_STEP)[0]


def again(case: Case, name: str, seed: int) -> Case:
    """A found case, made again from its origin."""
    for step in name.split(_STEP)[1:]:
        case = mutate(case, int(step), seed)
    return case


def mutate(case: Case, step: int, seed: int) -> Case:
    """One mutation of one input."""
    rng = np.random.default_rng([seed, 7, step])
    floats = [name for name, array in case.inputs.items() if is_float(array.dtype) and array.size]
    others = [
        name
        for name, array in case.inputs.items()
        if array.dtype.kind in "iub" and array.ndim and array.shape[-1] > 1
    ]
    inputs: dict[str, Array] = dict(case.inputs)
    name = str(rng.choice(floats or others)) if floats or others else ""
    if name in floats:
        inputs[name] = _float(inputs[name], rng)
    elif name:
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


def _float(array: Array, rng: np.random.Generator) -> Array:
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
    elif kind == 3:
        wide = wide - wide.mean() if rng.random() < 0.5 else wide + rng.standard_normal() * spread
    else:
        wide = np.where(
            rng.random(wide.shape) < 0.5, wide, wide.reshape(-1)[int(rng.integers(0, wide.size))]
        )
    return as_dtype(wide, array.dtype)


def cases_by_name(planned: Iterable[Case], names: Sequence[str], seed: int) -> Iterator[Case]:
    """The cases that were asked for by name; one that a search found is made again from its origin."""
    wanted: dict[str, list[str]] = {}
    for name in names:
        wanted.setdefault(origin(name), []).append(name)
    for case in planned:
        for name in wanted.get(case.name, ()):
            yield again(case, name, seed)
