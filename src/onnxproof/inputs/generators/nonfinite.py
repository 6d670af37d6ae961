"""NaN and infinities: one element, a whole row, mixed. A difference where the reference itself is not finite is a note."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Space
from onnxproof.results import Case, Domain

_ALL_BUT_ONE = "-inf but one a row"
_KINDS = {
    "one NaN": Domain.NAN,
    "a NaN row": Domain.NAN,
    "one inf": Domain.INF,
    "one -inf": Domain.INF,
    "a -inf row": Domain.INF,
    "an inf row": Domain.INF,
    "NaN, inf and -inf": Domain.NAN,
    "all NaN": Domain.NAN,
    _ALL_BUT_ONE: Domain.INF,
    "NaN first": Domain.NAN,
    "NaN last": Domain.NAN,
    "inf before NaN": Domain.NAN,
}
_WHOLE_ROWS = {"a NaN row": np.nan, "a -inf row": -np.inf, "an inf row": np.inf}
_MOST_INPUTS = 4
"""Inputs that are changed one by one (not measured)."""


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each float input, the others ordinary."""
    sizes = space.roomy()
    slots = [
        slot
        for slot in space.real_floats()
        if not slot.additive and slot.name not in space.rules.inputs
    ][:_MOST_INPUTS]
    for kind, domain in _KINDS.items():
        if domain not in space.domains:
            continue
        for slot in slots:
            name = f"nonfinite-{slot.name}-{kind}"
            values = space.values(name, sizes)[slot.name].astype(np.float64)
            if kind == _ALL_BUT_ONE and values.shape[-1:] in ((), (1,)):
                continue  # nothing is left to be infinite
            yield space.case(
                name,
                "nonfinite",
                f"{slot.name}: {kind}",
                sizes,
                replace={slot.name: _with_nonfinite(kind, values)},
                domain=domain,
                exact=True,
            )


def _with_nonfinite(kind: str, array: Array) -> Array:
    """Write values that are not finite into the array; rows run along the last axis."""
    if not array.size:
        return array
    width = 1
    if array.ndim:
        width = array.shape[-1]
    rows = array.reshape(-1, width)
    if kind == _ALL_BUT_ONE:
        rows[:, 1:] = -np.inf
        rows[:, 0] = 0.0
    elif kind == "all NaN":
        rows[:] = np.nan
    elif kind in _WHOLE_ROWS:
        rows[-1] = _WHOLE_ROWS[kind]
    else:
        flat = array.reshape(-1)
        for place, value in _elements(kind, flat.size):
            flat[place] = value
    return array


def _elements(kind: str, size: int) -> list[tuple[int, float]]:
    """The elements of a flat array to be written, and their values, in this order."""
    middle = size // 2
    by_kind: dict[str, list[tuple[int, float]]] = {
        "one NaN": [(middle, np.nan)],
        "NaN first": [(0, np.nan)],
        "NaN last": [(-1, np.nan)],
        "one inf": [(middle, np.inf)],
        "one -inf": [(middle, -np.inf)],
        "inf before NaN": [(middle - 1, np.inf), (middle, np.nan)],
        "NaN, inf and -inf": [(0, np.nan), (size // 3, -np.inf), (2 * size // 3, np.inf)],
    }
    return by_kind[kind]
