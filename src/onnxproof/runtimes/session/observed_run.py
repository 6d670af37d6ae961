"""One run, watched: how long it took, and whether the runtime wrote into what it was given."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.runtimes import Session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What one run gave."""

    outputs: list[Array | None]
    seconds: float
    """The runtime's own time, without the way to it and back."""
    spoiled: tuple[str, ...] = ()
    """Inputs that were written to."""


def run(session: Session, inputs: Mapping[str, Array]) -> Watched:
    """Run on copies of these arrays, and compare the copies with them afterwards, bit for bit."""
    watched = getattr(session, "watched", None)
    if watched is not None:  # a session in a process of its own has copies there
        found: Watched = watched(inputs)
        return found
    given = {
        name: np.array(array, order="C") if isinstance(array, np.ndarray) else array
        for name, array in inputs.items()
    }
    start = time.perf_counter()
    outputs = session.run(given)
    seconds = time.perf_counter() - start
    return Watched(
        outputs=outputs,
        seconds=getattr(session, "seconds", seconds),
        spoiled=spoiled(inputs, given),
    )


def spoiled(inputs: Mapping[str, Array], given: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the copies that are no longer what they were made of."""
    return tuple(
        name
        for name, array in inputs.items()
        if isinstance(array, np.ndarray)
        and not array.dtype.hasobject
        and not _same(array, given[name])
    )


def _same(a: Array, b: Array) -> bool:
    """Bit for bit, eight bytes at a time: a hash of megabytes would take longer than some models do."""
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (a, b))
    whole = a.size // 8 * 8
    return bool((a[:whole].view(np.uint64) == b[:whole].view(np.uint64)).all()) and bool(
        (a[whole:] == b[whole:]).all()
    )
