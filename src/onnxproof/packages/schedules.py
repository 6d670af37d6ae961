"""How a folder's model is called: how many rows, how many tokens at each call, which prompts are padded, and what is fed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from onnxproof.packages.examples import random_ids, source_tensor
from onnxproof.verification.rollout.schedules import Freedom, Schedule, plan
from onnxproof.verification.rollout.size_constants import declared_context

Array = np.ndarray[Any, Any]
_BATCHES = (2, 1, 3)
"""Rows, the most telling first; only one row goes on with several tokens in a decoder of GroupQueryAttention."""
_LONGEST = 4096
"""Tokens of the longest rollout (not measured)."""
_SIZES = ("sliding_window", "attention_window", "max_position_embeddings", "n_positions")
"""Fields of a configuration that hold a length which a rollout should cross, or end at."""


def plan_folder(
    config: Any,
    *,
    padding: bool,
    masked_source: bool,
    free_length: bool,
    buffer: int,
    steps: int | None = None,
) -> Iterator[Schedule]:
    """The schedules of a folder; none is longer than the model's positions, and sizes of its configuration are crossed."""
    two_parts = bool(config.is_encoder_decoder)
    freedom = Freedom(
        batches=_BATCHES,
        chunk=None if free_length else 1,
        masked=padding and not two_parts,
        masked_source=masked_source,
        longest=_longest(config, buffer),
    )
    yield from plan(freedom, _window_sizes(config), steps)


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
        self._mask = schedule.mask()
        self._sources: dict[str, Array] = {}
        if self._two_parts:
            self._sources = self._encoder_inputs()

    def feeds(self, begin: int, end: int, held: int, chosen: Array | None) -> dict[str, Array]:
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
        mask: Array = np.ones(source.shape, np.int64)
        if self._schedule.side == "source":
            for row in range(self._schedule.batch):
                mask[row, source.shape[1] - max(0, self._schedule.padding - row) :] = 0
        return {name: source, "attention_mask": mask}
