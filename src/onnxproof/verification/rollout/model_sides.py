"""The sides of a rollout of one file: reference, truth, re-runs and candidate, each with its own states."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxproof.reference.protocol import Reference
from onnxproof.runtimes.session.execution import Candidate
from onnxproof.verification.rollout.driving import Driven

Array = np.ndarray[Any, Any]
Call = Callable[[Mapping[str, Array]], Sequence[Array | None] | None]


class NoAnswer(Exception):
    """A side that has no answer here: a truth that can't be computed."""


class ModelSide:
    """A model called with its own states."""

    def __init__(
        self,
        call: Call,
        driven: Driven,
        outputs: Sequence[str],
        initial: Callable[[int], dict[str, Array]] | None = None,
        narrow: Callable[[Array], Array] | None = None,
    ) -> None:
        self._call, self._driven, self._outputs = call, driven, tuple(outputs)
        self._initial = initial or driven.initial
        self._narrow = narrow
        self.states: dict[str, Array] = {}
        self.called = ""

    def reset(self, batch: int) -> None:
        """Begin anew."""
        self.states = self._initial(batch)

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One call with the own states."""
        answers, self.states = self.call(feeds, self.states)
        return answers

    def call(
        self, feeds: Mapping[str, Array], states: Mapping[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Answers and next states of one call with these states; the own ones stay as they are."""
        outputs = self._call({**feeds, **states})
        if outputs is None:
            raise NoAnswer
        by_name = {
            name: value
            for name, value in zip(self._outputs, outputs, strict=True)
            if value is not None
        }
        following = {}
        for pair in self._driven.loop.states:
            if pair.output not in by_name:
                raise NoAnswer
            following[pair.input] = by_name.pop(pair.output)
        if self._narrow is not None:
            following = {name: self._narrow(value) for name, value in following.items()}
        return by_name, following


def reference_side(reference: Reference, driven: Driven, outputs: Sequence[str]) -> ModelSide:
    """The reference in its own precision."""
    return ModelSide(reference.run, driven, outputs)


def truth_side(reference: Reference, driven: Driven, outputs: Sequence[str]) -> ModelSide:
    """The reference in float64."""
    return ModelSide(reference.truth, driven, outputs)


def rerun_side(
    reference: Reference, driven: Driven, outputs: Sequence[str], seed: int
) -> ModelSide:
    """The reference with every operation rounded anew at every call."""
    calls = iter(range(seed, 1 << 31))

    def rerun(inputs: Mapping[str, Array]) -> Sequence[Array]:
        return reference.rerun(inputs, next(calls))

    return ModelSide(rerun, driven, outputs)


def half_side(
    reference: Reference, driven: Driven, outputs: Sequence[str], dtype: str
) -> ModelSide:
    """The reference in half precision: what that precision must cost along the loop."""

    def in_half(inputs: Mapping[str, Array]) -> Sequence[Array] | None:
        return reference.in_precision(inputs, dtype)

    return ModelSide(in_half, driven, outputs)


def rounded_side(
    reference: Reference, driven: Driven, outputs: Sequence[str], dtype: str
) -> ModelSide:
    """The reference with its states kept in a narrower float type."""

    def narrow(state: Array) -> Array:
        if state.dtype.kind != "f":
            return state
        return state.astype(np.dtype(dtype)).astype(state.dtype)

    return ModelSide(reference.run, driven, outputs, narrow=narrow)


def candidate_side(
    candidate: Candidate,
    driven: Driven,
    outputs: Sequence[str],
    initial: Callable[[int], dict[str, Array]],
) -> ModelSide:
    """The file on one backend; a call with an empty tensor runs apart, since some kernels abort on it."""

    def run(inputs: Mapping[str, Array]) -> Sequence[Array | None]:
        empty = any(array.size == 0 for array in inputs.values())
        return candidate.run(inputs, isolated=empty)

    return ModelSide(run, driven, outputs, initial)
