"""One side of a rollout: a model that keeps its own state from call to call; and what a rollout has to know of the loop."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from onnxproof.verification.rollout.schedules import Schedule

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class LoopSide(Protocol):
    """A model in its own loop: what it answered as state is what it gets as state.

    Feeds hold everything but the state, by the reference's input names; the result holds
    everything but the state, by the reference's output names.
    """

    states: dict[str, Array]
    """What the next call gets, by input; empty where nobody else may see it."""
    called: str
    """The file that answered last, of a model of several files."""

    def reset(self, batch: int) -> None:
        """Forget the state: the next step is the first of a rollout with this many rows."""

    def step(self, feeds: Arrays) -> dict[str, Array]:
        """Run one call with the state of the last one, and keep its new state."""

    def call(self, feeds: Arrays, states: Arrays) -> tuple[dict[str, Array], dict[str, Array]]:
        """Answers and next states of one call with these states; the own ones stay as they are."""


class Feeding(Protocol):
    """The inputs of each call of one rollout, without the states."""

    def feeds(self, begin: int, end: int, held: int, chosen: Array | None) -> dict[str, Array]:
        """What all sides get for these places; `chosen` are the tokens that the reference chose."""

    def real(self, begin: int, end: int) -> Array:
        """Which places of a call are real: rows by tokens."""


class LoopCalls(Protocol):
    """What a rollout has to know of a loop."""

    @property
    def answers(self) -> tuple[str, ...]:
        """The outputs that are read."""

    @property
    def logits(self) -> str | None:
        """The answer that the next token is chosen from."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The inputs whose states are compared."""

    def held(self, states: Arrays) -> int:
        """The length of states along the axis in which they grow."""

    def feeding(self, schedule: Schedule) -> Feeding:
        """What a rollout is fed with."""
