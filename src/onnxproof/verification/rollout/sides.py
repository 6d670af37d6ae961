"""One side of a rollout: a model that keeps its own state from call to call."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np


class LoopSide(Protocol):
    """A model in its own loop: what it answered as state is what it gets as state.

    Feeds hold everything but the state, by the reference's input names; the result holds
    everything but the state, by the reference's output names.
    """

    def reset(self, batch: int) -> None:
        """Forget the state: the next step is the first of a rollout with this many rows."""

    def step(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run one call with the state of the last one, and keep its new state."""
