"""The inputs of each call of a rollout, without the states."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.inputs.space import Slot, as_dtype, ordinary, upper
from onnxproof.verification.rollout.driving import Drive, Driven
from onnxproof.verification.rollout.schedules import Schedule

Array = np.ndarray[Any, Any]
_HIDDEN = -1e9
"""What a float mask adds to hide a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenCalls:
    """A loop as the roller takes it."""

    driven: Driven

    @property
    def answers(self) -> tuple[str, ...]:
        """The outputs that are read."""
        return self.driven.answers

    @property
    def logits(self) -> str | None:
        """The answer that the next token is chosen from."""
        return self.driven.logits

    @property
    def state_names(self) -> tuple[str, ...]:
        """The inputs that hold state."""
        return tuple(pair.input for pair in self.driven.loop.states)

    def held(self, states: Mapping[str, Array]) -> int:
        """The length of states along the axis in which they grow."""
        return self.driven.held(states)

    def feeding(self, schedule: Schedule) -> "Feeder":
        """What a rollout of this schedule is fed with."""
        return Feeder(self.driven, schedule)


class Feeder:
    """The inputs of each call of one rollout, without the states."""

    def __init__(
        self,
        driven: Driven,
        schedule: Schedule,
        mask: Array | None = None,
        context: Mapping[str, Array] | None = None,
    ) -> None:
        self._driven, self._schedule = driven, schedule
        self._rng = driven.space.rng(schedule.name)
        self._mask = schedule.mask() if mask is None else mask
        self._context = dict(context or {})

    def real(self, begin: int, end: int) -> Array:
        """Which places of a call are real: rows by tokens."""
        return self._mask[:, begin:end].astype(bool)

    def feeds(self, begin: int, end: int, held: int, chosen: Array | None) -> dict[str, Array]:
        """Everything but the states, for what lies between these places; `chosen` are the tokens that the reference chose."""
        driven = self._driven
        sizes = driven.sizes(self._schedule.batch, end - begin, held)
        feeds = {}
        for name, drive in driven.drives.items():
            slot = driven.slot(name)
            shape = driven.space.shape(slot.info, sizes)
            if drive is Drive.MASK:
                array = self._mask_values(slot, shape, begin, end)
            elif drive is Drive.TOKENS:
                array = self._tokens(slot, shape, sizes, chosen)
            elif drive in (Drive.POSITIONS, Drive.START, Drive.LENGTH):
                array = self._count(drive, shape, begin, end)
            elif drive is Drive.ROWS:
                array = np.roll(np.arange(shape[0]), 1)
            elif drive is Drive.CHUNK:
                array = ordinary(slot, shape, self._rng, sizes)
            else:
                if name not in self._context:
                    self._context[name] = ordinary(slot, shape, self._rng, sizes)
                array = self._context[name]
            feeds[name] = as_dtype(array, slot.dtype)
        return feeds

    def _tokens(
        self, slot: Slot, shape: tuple[int, ...], sizes: Mapping[str, int], chosen: Array | None
    ) -> Array:
        if chosen is not None and chosen.size == int(np.prod(shape)):
            return chosen.reshape(shape)
        high = upper(slot, sizes)
        return self._rng.integers(min(1, high - 1), high, shape)

    def _count(self, drive: Drive, shape: tuple[int, ...], begin: int, end: int) -> Array:
        if drive is Drive.START:
            return np.full(shape, begin)
        if drive is Drive.LENGTH:
            return np.full(shape, end)
        if len(shape) == 1:
            return np.arange(begin, end)
        positions = np.maximum(np.cumsum(self._mask, axis=1) - 1, 0)[:, begin:end]
        if len(shape) == 2 and shape[0] == self._schedule.batch:
            return np.asarray(positions)
        return np.broadcast_to(np.arange(begin, end), shape)

    def _mask_values(self, slot: Slot, shape: tuple[int, ...], begin: int, end: int) -> Array:
        """The mask of a call: of all places so far, of this call's, or of a buffer of fixed width."""
        visible = _fit_width(self._mask, shape[-1], begin, end)
        if len(shape) == 1:
            return np.asarray(visible[0])
        if len(shape) > 2:
            width = shape[-1]
            queries = np.arange(begin, end)[:, None]
            offset = begin if width == end - begin else 0
            causal = np.arange(width)[None] + offset <= queries
            allowed = causal[None, None] & visible[:, None, None, :].astype(bool)
            allowed = np.broadcast_to(allowed.reshape(_expanded(allowed, shape)), shape)
            if slot.additive:
                return np.where(allowed, 0.0, _HIDDEN)
            return allowed
        return np.broadcast_to(visible[: shape[0]], shape)


def _expanded(allowed: Array, shape: tuple[int, ...]) -> tuple[int, ...]:
    """[rows, 1, queries, keys], or without the heads where the mask has three dims."""
    rows, _, queries, keys = allowed.shape
    if len(shape) == 3:
        return (rows, queries, keys)
    return (rows, *[1] * (len(shape) - 3), queries, keys)


def _fit_width(mask: Array, width: int, begin: int, end: int) -> Array:
    if width == end:
        return mask[:, :end]
    if width == end - begin:
        return mask[:, begin:end]
    if width < end:
        return mask[:, end - width : end]
    return np.pad(mask[:, :end], ((0, 0), (0, width - end)))
