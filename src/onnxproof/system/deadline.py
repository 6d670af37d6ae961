"""One point in time that several stages share: each asks how much is left, and none has a clock of its own."""

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of `time.perf_counter`, which does not move.

    >>> Deadline.after(60.0).passed, Deadline.after(0.0).passed
    (False, True)
    """

    until: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """So many seconds from now."""
        return cls(time.perf_counter() + seconds)

    @classmethod
    def never(cls) -> Self:
        """For whoever has no budget."""
        return cls(float("inf"))

    @property
    def left(self) -> float:
        """Seconds that are left; 0 when it has passed."""
        return max(0.0, self.until - time.perf_counter())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return time.perf_counter() >= self.until

    def within(self, seconds: float) -> "Deadline":
        """The earlier of this moment and so many seconds from now."""
        return Deadline(min(self.until, time.perf_counter() + seconds))

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long can end before it."""
        return time.perf_counter() + seconds <= self.until
