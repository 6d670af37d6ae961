"""Shrink a counter-example before it is shown: fewer rows, rounder numbers."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from onnxproof.inputs.space import Array, as_dtype, is_float
from onnxproof.results import Case, Signature

_DIGITS = (0, 1, 2)
"""Digits after the first that are tried (not measured)."""


def shrink(
    case: Case,
    signature: Signature,
    still_bad: Callable[[Case], bool],
) -> Case:
    """The smallest of a few simpler cases that still shows the fault."""
    case = _fewer_rows(case, signature, still_bad)
    for digits in _DIGITS:
        inputs = {name: _round(array, digits) for name, array in case.inputs.items()}
        rounder = replace(case, inputs=inputs)
        if still_bad(rounder):
            return rounder
    return case


def _fewer_rows(
    case: Case,
    signature: Signature,
    still_bad: Callable[[Case], bool],
) -> Case:
    """One row of the leading dim that all inputs share, or one half of them again and again."""
    leading = {info.dims[0] for info in signature.inputs if info.dims}
    dim = next(iter(leading), None)
    if len(leading) != 1 or not isinstance(dim, str):
        return case
    while case.sizes.get(dim, 1) > 1:
        smaller = next(filter(still_bad, _parts(case, dim)), None)
        if smaller is None:
            return case
        case = smaller
    return case


def _parts(case: Case, dim: str) -> Iterator[Case]:
    """The first row, the last row, and either half."""
    rows = case.sizes[dim]
    middle = rows // 2
    parts = [
        slice(0, 1),
        slice(rows - 1, rows),
        slice(0, middle),
        slice(middle, rows),
    ]
    for part in parts:
        inputs = {name: array[part] for name, array in case.inputs.items()}
        sizes = {**case.sizes, dim: part.stop - part.start}
        yield replace(case, inputs=inputs, sizes=sizes)


def _round(array: Array, digits: int) -> Array:
    """The same with so many significant digits after the first."""
    if not is_float(array.dtype) or not array.size:
        return array
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        step = 10.0 ** (np.floor(np.log10(np.abs(wide))) - digits)
        has_digits = (wide != 0) & np.isfinite(wide) & np.isfinite(step) & (step != 0)
        rounded = np.where(has_digits, np.round(wide / step) * step, wide)
        return as_dtype(rounded, array.dtype)
