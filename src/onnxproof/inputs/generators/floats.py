"""Floats that sit where trouble is: zeros, halves, ties, constant rows, low variance, outliers, tiny, large, one sign."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from onnxproof.inputs.space import Array, Shape, Slot, Space
from onnxproof.results import Case

Make = Callable[[Shape, np.random.Generator], Array]


def _rows(shape: Shape) -> tuple[int, int]:
    """Number and width of the rows, which run along the last axis."""
    if not shape:
        return 1, 1
    return int(np.prod(shape[:-1], dtype=np.int64)), shape[-1]


def _constant_rows(shape: Shape, rng: np.random.Generator) -> Array:
    rows, width = _rows(shape)
    return np.repeat(rng.standard_normal((rows, 1)), width, axis=1).reshape(shape)


def _outlier(shape: Shape, rng: np.random.Generator) -> Array:
    array = rng.standard_normal(shape)
    if array.size:
        array.reshape(-1)[array.size // 2] = 1e4
    return array


def _one_hot(shape: Shape, rng: np.random.Generator) -> Array:
    rows, width = _rows(shape)
    array = np.zeros((rows, width))
    if width:
        array[np.arange(rows), rng.integers(0, width, rows)] = 1.0
    return array.reshape(shape)


def _ramp(shape: Shape, rng: np.random.Generator) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    return np.linspace(-3, 3, max(count, 1))[:count].reshape(shape)


def _part_zero(shape: Shape, rng: np.random.Generator) -> Array:
    """A silent stretch: half of every row is exactly zero, and the last row is all zero."""
    array = rng.standard_normal(shape)
    if shape and shape[-1] > 1:
        array[..., shape[-1] // 2 :] = 0.0
    if len(shape) > 1 and shape[0] > 1:
        array[-1] = 0.0
    return array


_EXACT: dict[str, Make] = {
    "zeros": lambda shape, rng: np.zeros(shape),
    "negative zeros": lambda shape, rng: np.full(shape, -0.0),
    "halves": lambda shape, rng: rng.integers(-4, 4, shape) + 0.5,
    "small integers": lambda shape, rng: rng.integers(-3, 4, shape).astype(np.float64),
    "two levels": lambda shape, rng: rng.integers(0, 2, shape).astype(np.float64),
    "all equal": lambda shape, rng: np.full(shape, 0.75),
    "constant rows": _constant_rows,
    "signed units": lambda shape, rng: rng.choice([-1.0, 1.0], shape),
    "one-hot": _one_hot,
    "part zero": _part_zero,
    "quarters": lambda shape, rng: rng.integers(-16, 17, shape) / 4.0,
}
_SMOOTH: dict[str, Make] = {
    "low variance": lambda shape, rng: 1e-4 * rng.standard_normal(shape),
    "low variance, large mean": lambda shape, rng: 100.0 + 0.01 * rng.standard_normal(shape),
    "all negative": lambda shape, rng: -np.abs(rng.standard_normal(shape)) - 0.1,
    "all positive": lambda shape, rng: np.abs(rng.standard_normal(shape)) + 0.1,
    "very negative": lambda shape, rng: -20.0 - 10 * np.abs(rng.standard_normal(shape)),
    "unit interval": lambda shape, rng: rng.random(shape),
    "one outlier": _outlier,
    "ramp": _ramp,
    "bytes": lambda shape, rng: rng.integers(0, 256, shape).astype(np.float64),
    "tiny": lambda shape, rng: 1e-8 * rng.standard_normal(shape),
    "denormal": lambda shape, rng: 1e-39 * rng.standard_normal(shape),
    "large": lambda shape, rng: 3e3 * rng.standard_normal(shape),
    "huge": lambda shape, rng: 1e7 * rng.standard_normal(shape),
}
_WIDE: dict[str, Make] = {
    "seconds of today": lambda shape, rng: 1.7e9 + 1e5 * rng.random(shape),
    "beyond float32": lambda shape, rng: 1e9 * (1 + rng.random(shape)),
}
"""For inputs in float64: whoever asks for it has numbers that float32 does not hold."""
_BEYOND_HALF = ("large", "huge")
_MOST_INPUTS = 4
"""Inputs that are changed one by one (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each float input while the others stay ordinary; then for all float inputs together."""
    slots = space.real_floats()
    sizes = space.roomy()
    groups = [(slot.name, [slot]) for slot in slots[:_MOST_INPUTS]]
    if len(slots) > 1:
        groups.append(("all", slots))
    for kind, make in (_EXACT | _SMOOTH | _WIDE).items():
        for label, group in groups:
            if not _holds(kind, group):
                continue
            name = f"float-{label}-{kind}"
            arrays = {
                slot.name: make(space.shape(slot.info, sizes), space.rng(name + slot.name))
                for slot in group
            }
            yield space.case(
                name, "floats", f"{label}: {kind}", sizes, replace=arrays, exact=kind in _EXACT
            )


def _holds(kind: str, slots: Sequence[Slot]) -> bool:
    """Whether the dtypes of these inputs hold values of that kind."""
    smallest = min(slot.dtype.itemsize for slot in slots)
    if kind in _WIDE:
        return smallest >= 8
    return kind not in _BEYOND_HALF or all(slot.dtype.itemsize != 2 for slot in slots)
