"""NaN and infinities: one element, a whole row, mixed. A difference where the reference itself is not finite is a note."""

from collections.abc import Iterator

import numpy as np

from onnxproof.inputs.space import Array, Role, Space
from onnxproof.results import Case, Domain

_KINDS = {
    "one NaN": Domain.NAN,
    "a NaN row": Domain.NAN,
    "one inf": Domain.INF,
    "one -inf": Domain.INF,
    "a -inf row": Domain.INF,
    "an inf row": Domain.INF,
    "NaN, inf and -inf": Domain.NAN,
    "all NaN": Domain.NAN,
    "-inf but one a row": Domain.INF,
    "NaN first": Domain.NAN,
    "NaN last": Domain.NAN,
    "inf before NaN": Domain.NAN,
}


def generate(space: Space) -> Iterator[Case]:
    """Each kind for each float input, the others ordinary."""
    sizes = space.roomy()
    for kind, domain in _KINDS.items():
        if domain in space.domains:
            for slot in [
                s for s in space.of_role(Role.FLOAT) if s.dtype.kind != "c" and not s.additive
            ][:4]:
                name = f"nonfinite-{slot.name}-{kind}"
                values = space.values(name, sizes)[slot.name].astype(np.float64)
                if kind == "-inf but one a row" and values.shape[-1:] in ((), (1,)):
                    continue  # nothing is left to be infinite
                yield space.case(
                    name,
                    "nonfinite",
                    f"{slot.name}: {kind}",
                    sizes,
                    replace={slot.name: _spoil(kind, values)},
                    domain=domain,
                    exact=True,
                )


def _spoil(kind: str, array: Array) -> Array:
    """Write the odd values into a copy; rows run along the last axis."""
    if not array.size:
        return array
    flat = array.reshape(-1)
    rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    middle = flat.size // 2
    if kind == "one NaN":
        flat[middle] = np.nan
    elif kind == "NaN first":
        flat[0] = np.nan
    elif kind == "NaN last":
        flat[-1] = np.nan
    elif kind == "one inf":
        flat[middle] = np.inf
    elif kind == "one -inf":
        flat[middle] = -np.inf
    elif kind == "inf before NaN":
        flat[middle - 1], flat[middle] = np.inf, np.nan
    elif kind == "all NaN":
        flat[:] = np.nan
    elif kind == "NaN, inf and -inf":
        for place, value in zip(
            (0, flat.size // 3, 2 * flat.size // 3), (np.nan, -np.inf, np.inf), strict=True
        ):
            flat[place] = value
    elif kind == "-inf but one a row":
        rows[:, 1:] = -np.inf
        rows[:, 0] = 0.0
    else:
        rows[-1] = {"a NaN row": np.nan, "a -inf row": -np.inf, "an inf row": np.inf}[kind]
    return array
