"""Make a found counter-example smaller before it is shown: fewer rows, rounder numbers."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from onnxproof.inputs.space import Array, as_dtype, is_float
from onnxproof.results import Case, Signature

_DIGITS = (0, 1, 2)


def shrink(case: Case, signature: Signature, still_bad: Callable[[Case], bool]) -> Case:
    """The smallest of a few simpler cases that still shows the fault."""
    case = _fewer_rows(case, signature, still_bad)
    for digits in _DIGITS:
        rounder = replace(case, inputs={n: _rounded(a, digits) for n, a in case.inputs.items()})
        if still_bad(rounder):
            return rounder
    return case


def _fewer_rows(case: Case, signature: Signature, still_bad: Callable[[Case], bool]) -> Case:
    """One row of the leading dim that all inputs share, or one half of them again and again."""
    leading = {info.dims[0] for info in signature.inputs if info.dims}
    names = [dim for dim in leading if isinstance(dim, str)]
    if len(leading) != 1 or not names:
        return case
    while case.sizes.get(names[0], 1) > 1:
        rows = case.sizes[names[0]]
        halves = [(0, 1), (rows - 1, rows), (0, rows // 2), (rows // 2, rows)]
        smaller = [
            replace(
                case,
                inputs={n: a[low:high] for n, a in case.inputs.items()},
                sizes={**case.sizes, names[0]: high - low},
            )
            for low, high in halves
        ]
        found = next((c for c in smaller if c.sizes[names[0]] < rows and still_bad(c)), None)
        if found is None:
            return case
        case = found
    return case


def _rounded(array: Array, digits: int) -> Array:
    """The same with so many significant digits after the first."""
    if not is_float(array.dtype) or not array.size:
        return array
    wide = array.astype(np.float64)
    with np.errstate(all="ignore"):
        step = 10.0 ** (np.floor(np.log10(np.abs(wide))) - digits)
        return as_dtype(
            np.where(
                (wide == 0) | ~np.isfinite(wide) | ~np.isfinite(step) | (step == 0),
                wide,
                np.round(wide / step) * step,
            ),
            array.dtype,
        )
