"""How a loop is called: how many rows, how much at each call, which rows are padded.

A schedule has a name that says all of it, so that any rollout can be run again by its name: `roll:b2:4,1x68` are two rows, a
prefill of 4 and 68 calls of 1; `:left3` pads the first row's prompt by 3 on the left and each next row's by one less, `:source3`
an encoder's input on the right.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from onnxproof.errors import UsageError

PREFIX = "roll:"
_NAME = re.compile(r"roll:b(\d+):([\dx,]+)(?::(left|right|source)(\d+))?(?:@\d+)?")
_PROMPT = 4
STEPS = 68
"""Calls after the prompt: 72 tokens cross windows, tables and buffers of up to 64 (not measured)."""
_SHORT = 12
"""Calls where a schedule asks for something else than length (not measured)."""
_BEFORE, _AFTER = 3, 6
"""How far before a size the calls of one begin, and how many there are: one more than it is crossed by."""
_LONGEST = 4096
"""Tokens or frames of the longest rollout (not measured)."""
_MOST_SIZES = 6
"""Sizes that are crossed by a rollout of their own (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One rollout to run."""

    batch: int
    lengths: tuple[int, ...]
    side: str = ""
    """`left` or `right` where prompts are padded; `source` where an encoder's input is, on the right."""
    padding: int = 0

    @property
    def name(self) -> str:
        """All of it in a word."""
        groups = [(size, len(list(run))) for size, run in itertools.groupby(self.lengths)]
        words = [f"{size}x{count}" if count > 1 else str(size) for size, count in groups]
        padded = f":{self.side}{self.padding}" if self.side else ""
        return f"{PREFIX}b{self.batch}:{','.join(words)}{padded}"

    @property
    def total(self) -> int:
        """Tokens or frames in all."""
        return sum(self.lengths)

    def cut(self, steps: int) -> "Schedule":
        """The first so many calls."""
        return replace(self, lengths=self.lengths[:steps])

    def mask(self) -> np.ndarray:
        """1 for what is real: rows by all tokens."""
        mask = np.ones((self.batch, self.total), np.int64)
        for row in range(self.batch):
            padded = max(0, min(self.padding - row, self.lengths[0] - 1))
            if self.side == "left":
                mask[row, :padded] = 0
            if self.side == "right":
                mask[row, self.lengths[0] - padded : self.lengths[0]] = 0
        return mask


def parse(name: str) -> Schedule:
    """The schedule behind a name.

    >>> parse("roll:b2:4,1x3:left2").lengths
    (4, 1, 1, 1)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise UsageError(
            "bad-rollout",
            f"`{name}` is no rollout",
            help="write rows and calls, such as `roll:b2:4,1x20` or `roll:b2:4,1x20:left3`",
        )
    lengths: list[int] = []
    for word in match[2].split(","):
        size, _, count = word.partition("x")
        lengths += [int(size)] * int(count or 1)
    return Schedule(
        batch=int(match[1]),
        lengths=tuple(lengths),
        side=match[3] or "",
        padding=int(match[4] or 0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Freedom:
    """What a model lets vary."""

    batches: tuple[int, ...] = (2,)
    """Numbers of rows that may be tried, the best one first."""
    chunk: int | None = None
    """The one size of a call that it takes; None where it takes any."""
    masked: bool = False
    """Whether a mask says which places are real."""
    masked_source: bool = False
    """Whether a mask says which places of an encoder's input are real."""
    longest: int | None = None
    """Tokens or frames that a rollout may have at the most."""

    def within(self, longest: int | None) -> "Freedom":
        """The same with a further limit of the length."""
        limits = [limit for limit in (self.longest, longest) if limit is not None]
        return replace(self, longest=min(limits, default=None))


def plan(freedom: Freedom, sizes: Iterable[int], steps: int | None = None) -> Iterator[Schedule]:
    """The schedules, ordered by what tells most.

    1. A prompt, then one by one, long enough to cross small sizes.
    2. Padded prompts, left and right.
    3. Uneven calls, from an empty past one by one, another batch.
    4. Every larger size constant is crossed.
    """
    seen = set()
    for schedule in _all(freedom, sizes, steps or STEPS):
        fitted = _fitted(schedule, freedom)
        if fitted is not None and fitted.name not in seen:
            seen.add(fitted.name)
            yield fitted


def _all(freedom: Freedom, sizes: Iterable[int], steps: int) -> Iterator[Schedule]:
    first, *others = freedom.batches
    short = min(steps, _SHORT)
    yield Schedule(batch=first, lengths=(_PROMPT, *[1] * steps))
    if freedom.masked:
        for side in ("left", "right"):
            yield Schedule(batch=first, lengths=(_PROMPT, *[1] * short), side=side, padding=3)
    if freedom.masked_source:
        yield Schedule(batch=first, lengths=(_PROMPT, *[1] * short), side="source", padding=3)
    batches = itertools.cycle([*others, first])
    yield Schedule(batch=next(batches), lengths=(3, 7, 1, 3, 7, 1, 1))
    yield Schedule(batch=next(batches), lengths=(1,) * short)
    if freedom.masked and max(freedom.batches) > first:
        most = max(freedom.batches)
        yield Schedule(batch=most, lengths=(7, 3, 1, 1, 1), side="left", padding=6)
    crossed = [size for size in sizes if _PROMPT + steps < size + _AFTER <= _LONGEST]
    for size in list(dict.fromkeys(crossed))[:_MOST_SIZES]:
        yield Schedule(batch=freedom.batches[-1], lengths=(size - _BEFORE, *[1] * _AFTER))


def _fitted(schedule: Schedule, freedom: Freedom) -> Schedule | None:
    """The schedule as far as the model's sizes allow it."""
    lengths: Sequence[int] = schedule.lengths
    if freedom.chunk is not None:
        lengths = (freedom.chunk,) * (schedule.total // freedom.chunk)
        if schedule.side != "source":
            schedule = replace(schedule, side="", padding=0)
    if freedom.longest is not None:
        within = [total <= freedom.longest for total in itertools.accumulate(lengths)]
        lengths = lengths[: sum(within)]
    if not lengths:
        return None
    return replace(schedule, lengths=tuple(lengths))
