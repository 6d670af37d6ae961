"""For those who write a backend, or test with one: a conformance kit, a fake backend, and ways for it to misbehave."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof import runtimes
from onnxproof.runtimes import Description, Session, open_session
from onnxproof.testing._conformance import conformance, refusals
from onnxproof.testing._outsiders import outsider

Array = np.ndarray[Any, Any]
Run = Callable[[Session, Mapping[str, Array]], "list[Array | None]"]
"""How a fake answers: it gets an honest session of the same model, and the inputs."""


def honest(session: Session, inputs: Mapping[str, Array]) -> list[Array | None]:
    """No misbehaviour: what the session behind the fake says."""
    return session.run(inputs)


class FakeSession:
    """A session that answers by a function; whatever runs behind it is honest."""

    def __init__(self, inner: Session, run: Run = honest) -> None:
        self._inner, self._run = inner, run
        self.input_names, self.output_names = inner.input_names, inner.output_names
        self.findings = getattr(inner, "findings", ())

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """What the function makes of these inputs."""
        return self._run(self._inner, inputs)

    def close(self) -> None:
        """Let the honest session go."""
        self._inner.close()


class _FakeBackend:
    def __init__(self, name: str, run: Run, inner: str) -> None:
        self._name, self._answer, self._inner = name, run, inner

    def open(self, model: Path, option: str = "") -> Session:
        return FakeSession(open_session(self._inner, model), self._answer)

    def describe(self) -> Description:
        return Description(
            name=self._name, about=f"a fake in front of {self._inner}", installed=True
        )


@contextmanager
def fake_backend(name: str, run: Run = honest, *, inner: str = "ort") -> Iterator[None]:
    """Make `name` a backend for a while: it opens models on `inner` and answers by `run`.

    >>> with fake_backend("liar", adds_noise()):
    ...     backends.load("liar").describe().about
    'a fake in front of ort'
    """
    before = runtimes._registered.get(name)
    runtimes._registered[name] = _FakeBackend(name, run, inner)
    try:
        yield
    finally:
        if before is None:
            del runtimes._registered[name]
        else:
            runtimes._registered[name] = before


def adds_noise(share: float = 1e-2, seed: int = 0) -> Run:
    """Every float output is off by a share of its own scale."""
    rng = np.random.default_rng(seed)

    def spoil(array: Array) -> Array:
        if array.dtype.kind != "f" or not array.size:
            return array
        finite = array[np.isfinite(array)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        return np.asarray(array + share * scale * rng.standard_normal(array.shape)).astype(
            array.dtype
        )

    return _each(spoil)


def stale() -> Run:
    """Answers with the first output of that shape that it ever gave, as a runtime that swallowed an error does."""
    kept: dict[Any, list[Array | None]] = {}

    def run(session: Session, inputs: Mapping[str, Array]) -> list[Array | None]:
        fresh = session.run(inputs)
        key = (id(session), *(None if a is None else (a.shape, a.dtype.str) for a in fresh))
        return [None if a is None else a.copy() for a in kept.setdefault(key, fresh)]

    return run


def raising(error: Exception | None = None) -> Run:
    """Never answers."""

    def run(session: Session, inputs: Mapping[str, Array]) -> list[Array | None]:
        raise error or RuntimeError("the fake raises")

    return run


def flattens() -> Run:
    """Every output has the right elements in the wrong shape."""
    return _each(lambda array: array.reshape(-1))


def broadcasts() -> Run:
    """Every output keeps only its first row, which would still broadcast against the right one."""
    return _each(lambda array: array[:1] if array.ndim else array.reshape(1))


def drops_nan() -> Run:
    """NaN becomes 0."""
    return _each(
        lambda array: (
            np.nan_to_num(array, nan=0.0, posinf=np.inf, neginf=-np.inf)
            if array.dtype.kind == "f"
            else array
        )
    )


def swaps_outputs() -> Run:
    """Outputs come in the reverse order."""
    return lambda session, inputs: session.run(inputs)[::-1]


def narrows() -> Run:
    """float64 comes back as float32, and int64 went through int32."""
    narrow = {np.dtype(np.float64): np.float32, np.dtype(np.int64): np.int32}
    return _each(
        lambda array: (
            array.astype(narrow[array.dtype]).astype(
                np.int64 if array.dtype == np.int64 else np.float32
            )
            if array.dtype in narrow
            else array
        )
    )


def spoils_inputs() -> Run:
    """Writes into the caller's arrays, as a runtime that shares inputs may."""

    def run(session: Session, inputs: Mapping[str, Array]) -> list[Array | None]:
        answer = session.run(inputs)
        for array in inputs.values():
            array[...] = np.zeros((), array.dtype)
        return answer

    return run


def _each(change: Callable[[Array], Array]) -> Run:
    return lambda session, inputs: [
        None if array is None else change(array) for array in session.run(inputs)
    ]


__all__ = [
    "FakeSession",
    "adds_noise",
    "broadcasts",
    "conformance",
    "drops_nan",
    "fake_backend",
    "flattens",
    "honest",
    "narrows",
    "outsider",
    "raising",
    "refusals",
    "spoils_inputs",
    "stale",
    "swaps_outputs",
]
