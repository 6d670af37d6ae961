"""How a folder's model is called: how many rows, how many tokens at each call, which prompts are padded, and what is fed."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from onnxproof.packages.examples import random_ids, source_tensor
from onnxproof.verification.rollout.size_constants import declared_context

Array = np.ndarray[Any, Any]
_NAME = re.compile(r"roll:b(\d{1,4}):((?:\d{1,5}(?:x\d{1,5})?,?)+)(?::pad(\d{1,4}))?")
_PROMPT = 4
_STEPS = 40
"""Calls after the prompt in the first rollout: it crosses windows and buffers of up to 44 tokens (not measured)."""
_SHORT = 6
"""Calls where a schedule asks for something else than length (not measured)."""
_LONGEST = 4096
"""Tokens of the longest rollout (not measured)."""
_SIZES = ("sliding_window", "attention_window", "max_position_embeddings", "n_positions")
"""Fields of a configuration that hold a length which a rollout should cross, or end at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One rollout to run."""

    batch: int
    lengths: tuple[int, ...]
    padding: int = 0
    """Hidden places of the first row; each next row has one less. Prompts are padded on the left, an encoder's input on the right."""

    @property
    def name(self) -> str:
        """All of it in a word: `roll:b2:4,1x40:pad2`."""
        runs = [(size, len(list(run))) for size, run in itertools.groupby(self.lengths)]
        words = [f"{size}x{count}" if count > 1 else str(size) for size, count in runs]
        padded = f":pad{self.padding}" if self.padding else ""
        return f"roll:b{self.batch}:{','.join(words)}{padded}"

    @classmethod
    def of(cls, name: str) -> "Schedule | None":
        """The schedule of a name; None for a name that is no schedule's.

        >>> Schedule.of("roll:b2:4,1x3:pad2")
        Schedule(batch=2, lengths=(4, 1, 1, 1), padding=2)
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        batch, calls, padding = match.groups()
        lengths: list[int] = []
        for word in calls.split(","):
            size, _, count = word.partition("x")
            lengths += [int(size)] * int(count or 1)
        return cls(batch=int(batch), lengths=tuple(lengths), padding=int(padding or 0))

    @property
    def total(self) -> int:
        """Tokens in all."""
        return sum(self.lengths)


def plan(config: Any, *, padding: bool, free_length: bool, buffer: int) -> Iterator[Schedule]:
    """The schedules, the most telling first; none is longer than the model's positions.

    1. A prompt, then token by token.
    2. Padded prompts (or encoder inputs) of several lengths in one batch.
    3. Up to a size of the configuration and beyond it.
    4. From an empty cache; chunks of several tokens.
    """
    longest = _longest(config, buffer)
    steps = min(_STEPS, longest - _PROMPT)
    prompt = _PROMPT if free_length else 1
    yield Schedule(batch=2, lengths=(prompt, *[1] * steps))
    if padding:
        yield Schedule(batch=3, lengths=(prompt, *[1] * _SHORT), padding=2)
    for size in _window_sizes(config):
        before = size - 2
        if free_length and size > _PROMPT + _STEPS and before + _SHORT <= longest:
            yield Schedule(batch=1, lengths=(before, *[1] * _SHORT))
    yield Schedule(batch=1, lengths=(1,) * _SHORT)
    if free_length:
        yield Schedule(batch=1, lengths=(3, 1, 7, 1, 2))


def _longest(config: Any, buffer: int) -> int:
    """Tokens that the model has positions for, and its buffer places."""
    context = declared_context(config) or _LONGEST
    return min(context, buffer or _LONGEST, _LONGEST)


def _window_sizes(config: Any) -> list[int]:
    text = config.get_text_config(decoder=True)
    values = [getattr(text, name, None) for name in _SIZES]
    return [int(value) for value in values if isinstance(value, int) and value > 0]


class Feeder:
    """What all sides are fed with in one rollout; the tokens after the prompt are those that the reference would choose."""

    def __init__(self, model: Any, schedule: Schedule, seed: int) -> None:
        self._model, self._schedule = model, schedule
        self._generator = torch.Generator().manual_seed(seed + schedule.total)
        self._two_parts = bool(model.config.is_encoder_decoder)
        self._mask = np.ones((schedule.batch, schedule.total), np.int64)
        self._sources: dict[str, Array] = {}
        if self._two_parts:
            self._sources = self._encoder_inputs()
        else:
            self._hide(self._mask[:, : schedule.lengths[0]])

    def feeds(self, begin: int, end: int, chosen: Array | None) -> dict[str, Array]:
        """The inputs of one call, by the names of the whole model's `forward`."""
        shape = (self._schedule.batch, end - begin)
        ids = random_ids(self._model, shape, self._generator).numpy()
        if chosen is not None:
            ids[:, 0] = chosen
        if self._two_parts:
            return {**self._sources, "decoder_input_ids": ids}
        mask = self._mask[:, :end]
        positions = np.clip(mask.cumsum(1) - 1, 0, None)[:, begin:]
        return {"input_ids": ids, "attention_mask": mask, "position_ids": positions}

    def real(self, begin: int, end: int) -> Array:
        """True where a token of this call is no padding."""
        return self._mask[:, begin:end].astype(bool)

    def _encoder_inputs(self) -> dict[str, Array]:
        name = self._model.main_input_name
        source = source_tensor(self._model, name, self._schedule.batch).numpy()
        if name != "input_ids":
            return {name: source}
        mask = np.ones(source.shape, np.int64)
        self._hide(mask[:, ::-1])
        return {name: source, "attention_mask": mask}

    def _hide(self, mask: Array) -> None:
        """Hide the first places of each row, but never all of them."""
        for row in range(self._schedule.batch):
            hidden = min(self._schedule.padding - row, mask.shape[1] - 1)
            mask[row, : max(0, hidden)] = 0
