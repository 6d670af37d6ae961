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
Inputs = Mapping[str, Array]
Outputs = list[Array | None]
Run = Callable[[Session, Inputs], Outputs]
"""How a fake answers: it gets an honest session of the same model, and the inputs."""


def honest(session: Session, inputs: Inputs) -> Outputs:
    """No misbehaviour: what the session behind the fake says."""
    return session.run(inputs)


class FakeSession:
    """A session that answers by a function; whatever runs behind it is honest."""

    def __init__(self, inner: Session, run: Run = honest) -> None:
        self._inner = inner
        self._run = run
        self.input_names = inner.input_names
        self.output_names = inner.output_names
        self.findings = getattr(inner, "findings", ())

    def run(self, inputs: Inputs) -> Outputs:
        """What the function answers to these inputs."""
        return self._run(self._inner, inputs)

    def close(self) -> None:
        """Close the honest session."""
        self._inner.close()


class _FakeBackend:
    def __init__(self, name: str, run: Run, inner: str) -> None:
        self._name = name
        self._run = run
        self._inner = inner

    def open(self, model: Path, option: str = "") -> Session:
        return FakeSession(open_session(self._inner, model), self._run)

    def describe(self) -> Description:
        return Description(
            name=self._name, about=f"a fake in front of {self._inner}", installed=True
        )


@contextmanager
def fake_backend(
    name: str,
    run: Run = honest,
    *,
    inner: str = "ort",
) -> Iterator[None]:
    """Make `name` a backend for a while: it opens models on `inner` and answers by `run`.

    >>> with fake_backend("liar", adds_noise()):
    ...     runtimes.load("liar").describe().about
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

    def add_noise(array: Array) -> Array:
        if array.dtype.kind != "f" or not array.size:
            return array
        finite = array[np.isfinite(array)]
        scale = 1.0
        if finite.size:
            scale = float(np.abs(finite).max())
        noise = share * scale * rng.standard_normal(array.shape)
        return np.asarray(array + noise).astype(array.dtype)

    return _change_each(add_noise)


def stale() -> Run:
    """Answers with the first output of that shape that it ever gave, as a runtime that swallowed an error does."""
    first_answers: dict[Any, Outputs] = {}

    def run(session: Session, inputs: Inputs) -> Outputs:
        fresh = session.run(inputs)
        types = [(array.shape, array.dtype.str) for array in fresh if array is not None]
        missing = [array is None for array in fresh]
        key = (id(session), *types, *missing)
        return _copies(first_answers.setdefault(key, fresh))

    return run


def _copies(outputs: Outputs) -> Outputs:
    return [array if array is None else array.copy() for array in outputs]


def raising(error: Exception | None = None) -> Run:
    """Never answers."""

    def run(session: Session, inputs: Inputs) -> Outputs:
        raise error or RuntimeError("the fake raises")

    return run


def flattens() -> Run:
    """Every output has the right elements in the wrong shape."""
    return _change_each(lambda array: array.reshape(-1))


def broadcasts() -> Run:
    """Every output keeps only its first row, which would still broadcast against the right one."""
    return _change_each(lambda array: np.atleast_1d(array)[:1])


def drops_nan() -> Run:
    """NaN becomes 0."""

    def drop_nan(array: Array) -> Array:
        if array.dtype.kind != "f":
            return array
        return np.nan_to_num(array, nan=0.0, posinf=np.inf, neginf=-np.inf)

    return _change_each(drop_nan)


def swaps_outputs() -> Run:
    """Outputs come in the reverse order."""
    return lambda session, inputs: session.run(inputs)[::-1]


def narrows() -> Run:
    """float64 comes back as float32, and int64 went through int32."""

    def narrow(array: Array) -> Array:
        if array.dtype == np.int64:
            return array.astype(np.int32).astype(np.int64)
        if array.dtype == np.float64:
            return array.astype(np.float32)
        return array

    return _change_each(narrow)


def spoils_inputs() -> Run:
    """Writes into the caller's arrays, as a runtime that shares inputs may."""

    def run(session: Session, inputs: Inputs) -> Outputs:
        answer = session.run(inputs)
        for array in inputs.values():
            array[...] = np.zeros((), array.dtype)
        return answer

    return run


def _change_each(change: Callable[[Array], Array]) -> Run:
    """Change every output that is there."""

    def run(session: Session, inputs: Inputs) -> Outputs:
        outputs = session.run(inputs)
        return [array if array is None else change(array) for array in outputs]

    return run


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
