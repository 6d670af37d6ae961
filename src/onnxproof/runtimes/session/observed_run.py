"""One run, observed: how long it took, and whether the runtime wrote into its inputs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onnxproof.runtimes import Session

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRun:
    """What one run gave."""

    outputs: list[Array | None]
    seconds: float
    """The runtime's own time, without the way to it and back."""
    overwritten: tuple[str, ...] = ()
    """Inputs that the runtime wrote into."""


@runtime_checkable
class ObservingSession(Protocol):
    """A session that observes by itself: one in a process of its own has its copies there."""

    def run_observed(self, inputs: Mapping[str, Array]) -> ObservedRun:
        """One run."""


def run(session: Session, inputs: Mapping[str, Array]) -> ObservedRun:
    """Run on copies of these arrays, and compare the copies with them afterwards, bit for bit."""
    if isinstance(session, ObservingSession):
        return session.run_observed(inputs)
    copies: dict[str, Any] = dict(inputs)
    for name, array in inputs.items():
        if isinstance(array, np.ndarray):
            copies[name] = np.array(array, order="C")
    start = time.perf_counter()
    outputs = session.run(copies)
    seconds = time.perf_counter() - start
    return ObservedRun(
        outputs=outputs,
        seconds=getattr(session, "seconds", seconds),
        overwritten=overwritten(inputs, copies),
    )


def overwritten(inputs: Mapping[str, Array], copies: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the copies that are no longer equal to their arrays."""
    return tuple(
        name
        for name, array in inputs.items()
        if isinstance(array, np.ndarray)
        and not array.dtype.hasobject
        and not _same(array, copies[name])
    )


def _same(a: Array, b: Array) -> bool:
    """Bit for bit, eight bytes at a time: a hash of megabytes would take longer than some models do."""
    left = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    right = np.ascontiguousarray(b).reshape(-1).view(np.uint8)
    whole = left.size // 8 * 8
    if not (left[:whole].view(np.uint64) == right[:whole].view(np.uint64)).all():
        return False
    return bool((left[whole:] == right[whole:]).all())
