"""What drives a loop: which input takes the tokens or chunks, and what masks, positions and counters are at each call."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from onnxproof.inputs.space import Role, Slot, Space, ordinary
from onnxproof.results import OutputInfo
from onnxproof.verification.rollout.loop import Loop
from onnxproof.verification.rollout.schedules import Freedom
from onnxproof.verification.rollout.state_names import words_of

Array = np.ndarray[Any, Any]
_POSITION_WORDS = frozenset(
    [
        "pos",
        "position",
        "positions",
        "index",
        "idx",
        "slot",
        "slots",
        "step",
        "steps",
        "offset",
        "offsets",
        "start",
        "counter",
        "cur",
        "time",
        "timestep",
        "t",
    ]
)
_LENGTH_WORDS = frozenset(["len", "length", "lengths", "lens", "seqlen", "seqlens", "total"])
_ROW_WORDS = frozenset(["beam", "beams", "reorder", "parent", "parents"])
_BATCHES = (2, 1, 3)
"""Rows of the rollouts, the most telling first."""


class Drive(StrEnum):
    """What an input gets at each call."""

    TOKENS = "tokens"
    MASK = "mask"
    POSITIONS = "positions"
    START = "start"
    """How much was consumed before this call: a slot, a step counter."""
    LENGTH = "length"
    """How much was consumed with this call."""
    ROWS = "rows"
    """The row of the states that each row goes on with: the order of beams."""
    CHUNK = "chunk"
    """Fresh values at every call."""
    CONTEXT = "context"
    """The same values at every call of a rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driven:
    """A loop, and how it is driven."""

    loop: Loop
    space: Space
    drives: Mapping[str, Drive]
    batch: str | None
    """The dim of rows; None where their number is fixed."""
    chunk: str | None
    """The dim of what one call consumes; None where that is fixed."""
    past: str | None
    """The dim that the states grow in; None where they keep their size."""
    consumes: int
    """What a call of the example consumes."""
    answers: tuple[str, ...]
    """The outputs that are read."""
    logits: str | None = None
    """The answer that the next token is chosen from."""
    seeded: bool = False
    """Start from states like the example's, where the reference refuses empty ones."""

    @property
    def freedom(self) -> Freedom:
        """What the model lets vary."""
        batches: tuple[int, ...] = (self._example_batch(),)
        if self._is_free(self.batch):
            batches = tuple(size for size in _BATCHES if self._allows(self.batch, size))
        fixed = None if self._is_free(self.chunk) else self.consumes
        masks = [name for name, drive in self.drives.items() if drive is Drive.MASK]
        wide = [name for name in masks if self.slot(name).example.ndim >= 2]
        return Freedom(
            batches=batches or (self._example_batch(),),
            chunk=fixed,
            masked=bool(wide) and self.logits is not None,
            longest=self._longest(),
        )

    def slot(self, name: str) -> Slot:
        """The input of that name."""
        return next(slot for slot in self.space.slots if slot.name == name)

    def sizes(self, batch: int, consumed: int, held: int) -> dict[str, int]:
        """All dims of a call of so many rows that consumes so much, with states of that length."""
        changed = {}
        if self.batch is not None:
            changed[self.batch] = batch
        if self.chunk is not None:
            changed[self.chunk] = consumed
        if self.past is not None:
            changed[self.past] = held
        return self.space.sizes(**changed)

    def initial(self, batch: int) -> dict[str, Array]:
        """The states before the first call: empty or zero, or like the example's."""
        held = 0
        if self.seeded and self.past is not None:
            held = self.space.signature.dim(self.past).example
        sizes = self.sizes(batch, self.consumes, held)
        rng = self.space.rng(f"state-{batch}")
        states = {}
        for pair in self.loop.states:
            slot = self.slot(pair.input)
            shape = self.space.shape(slot.info, sizes)
            states[pair.input] = np.zeros(shape, slot.dtype)
            if self.seeded:
                states[pair.input] = ordinary(slot, shape, rng, sizes)
        return states

    def held(self, states: Mapping[str, Array]) -> int:
        """The length of states along the axis in which they grow."""
        for pair in self.loop.states:
            if pair.grows is not None:
                return int(states[pair.input].shape[pair.grows])
        return 0

    def words(self) -> str:
        """How the loop was understood, in a sentence."""
        parts = [f"{len(self.loop.states)} outputs feed inputs"]
        for name, drive in self.drives.items():
            parts += _DRIVE_WORDS.get(drive, "").format(name=name).split("|")
        if self.logits is not None:
            parts.append(f"logits come from `{self.logits}`")
        return "; ".join(part for part in parts if part)

    def _is_free(self, name: str | None) -> bool:
        return name is not None and name not in self.space.pinned

    def _allows(self, name: str | None, size: int) -> bool:
        dim = self.space.signature.dim(name or "")
        return size >= dim.minimum and (dim.maximum is None or size <= dim.maximum)

    def _example_batch(self) -> int:
        if self.batch is None:
            return 1
        return self.space.signature.dim(self.batch).example

    def _longest(self) -> int | None:
        follows = {self.past, *self.space.relations}
        tops = [dim.maximum for dim in self.space.signature.dims if dim.name in follows]
        return min((top for top in tops if top is not None), default=None)


_DRIVE_WORDS = {
    Drive.TOKENS: "tokens go to `{name}`",
    Drive.MASK: "mask `{name}` follows",
    Drive.POSITIONS: "positions go to `{name}`",
    Drive.START: "`{name}` counts what was consumed",
    Drive.LENGTH: "`{name}` is the length",
    Drive.ROWS: "`{name}` says which row goes on",
    Drive.CHUNK: "chunks go to `{name}`",
}


def understand(loop: Loop, space: Space, outputs: tuple[OutputInfo, ...]) -> Driven | str:
    """How a loop is driven, or why that can't be told."""
    driving = [slot for slot in space.slots if slot.name not in loop.inputs]
    primary = _primary(driving)
    if primary is None:
        return "no input takes tokens or chunks"
    names = _Dims(space, loop)
    batch, chunk = names.of_primary(primary)
    past = names.past
    if any(pair.grows is not None for pair in loop.states) and past is None:
        return "the states grow, and the file or `dynamic_shapes` has their size fixed"
    consumes = _consumes(loop, space, primary, chunk, outputs)
    has_tokens = _is_tokens(primary)
    drives = {}
    for slot in driving:
        drives[slot.name] = _drive(slot, primary, chunk, has_tokens=has_tokens, names=names)
    answers = tuple(output.name for output in outputs if output.name not in loop.outputs)
    return Driven(
        loop=loop,
        space=space,
        drives=drives,
        batch=batch,
        chunk=chunk,
        past=past,
        consumes=consumes,
        answers=answers,
        logits=_logits(primary, outputs, answers),
    )


def relate(driven: Driven) -> Driven:
    """The dims that follow from the loop: masks as long as past and call together, and all states of one length."""
    space = driven.space
    if driven.past is None:
        return driven
    relations = dict(space.relations)
    past = space.signature.dim(driven.past)
    call = driven.chunk or str(driven.consumes)
    whole = past.example + driven.consumes
    known = {driven.past, driven.chunk, driven.batch}
    growing = _growing_dims(driven)
    masked = _masked_dims(driven)
    for dim in space.signature.dims:
        if dim.name in known or dim.name in relations:
            continue
        if dim.name in growing and dim.example == past.example:
            relations[dim.name] = driven.past
        elif dim.name in masked and dim.example == whole:
            relations[dim.name] = f"{driven.past} + {call}"
    return replace(driven, space=replace(space, relations=relations))


def _growing_dims(driven: Driven) -> set[str | int]:
    """The dims of states along which a call adds to them."""
    return {
        driven.slot(pair.input).info.dims[pair.grows]
        for pair in driven.loop.states
        if pair.grows is not None
    }


def _masked_dims(driven: Driven) -> set[str | int]:
    """The dims of masks and positions."""
    return {
        dim
        for name, drive in driven.drives.items()
        if drive in (Drive.MASK, Drive.POSITIONS)
        for dim in driven.slot(name).info.dims
    }


class _Dims:
    """The dims of a space by what they mean to a loop."""

    def __init__(self, space: Space, loop: Loop) -> None:
        self._space = space
        grown, kept = [], []
        for pair in loop.states:
            info = next(slot.info for slot in space.slots if slot.name == pair.input)
            for axis, dim in enumerate(info.dims):
                if isinstance(dim, str) and axis == pair.grows:
                    grown.append(self.canonical(dim))
                elif isinstance(dim, str):
                    kept.append(self.canonical(dim))
        self.past = grown[0] if grown else None
        self._kept = kept

    def canonical(self, dim: str | int) -> str:
        """The dim that this one is tied to, or itself."""
        name = str(dim)
        for _ in range(len(self._space.relations)):
            target = self._space.relations.get(name, name)
            if target == name or not target.isidentifier():
                break
            name = target
        return name

    def of_primary(self, primary: Slot) -> tuple[str | None, str | None]:
        """The dims of rows and of what a call consumes."""
        dims = [self.canonical(dim) for dim in primary.info.dims if isinstance(dim, str)]
        batch = next((dim for dim in dims if dim in self._kept), None)
        if batch is None and dims and isinstance(primary.info.dims[0], str):
            batch = dims[0]
        chunk = next((dim for dim in dims if dim != batch and dim not in self._kept), None)
        return batch, chunk

    def has(self, slot: Slot, dim: str | None) -> bool:
        """Whether an input has that dim."""
        names = [self.canonical(own) for own in slot.info.dims if isinstance(own, str)]
        return dim is not None and dim in names


def _is_tokens(slot: Slot) -> bool:
    counts = _POSITION_WORDS & set(words_of(slot.name))
    return slot.role is Role.IDS and slot.high is not None and not counts


def _primary(driving: list[Slot]) -> Slot | None:
    """The input that takes tokens, or the largest one that takes chunks."""
    tokens = [slot for slot in driving if _is_tokens(slot)]
    named = [slot for slot in tokens if {"id", "ids", "token", "tokens"} & set(words_of(slot.name))]
    if tokens:
        return (named or tokens)[0]
    floats = [slot for slot in driving if slot.role is Role.FLOAT and not slot.additive]
    return max(floats, key=lambda slot: slot.example.size, default=None)


def _consumes(
    loop: Loop,
    space: Space,
    primary: Slot,
    chunk: str | None,
    outputs: tuple[OutputInfo, ...],
) -> int:
    """What a call of the example consumes: by the dim, by what the states grow, or by the tokens' own width."""
    if chunk is not None:
        return space.signature.dim(chunk).example
    shapes = {output.name: output.shape for output in outputs}
    for pair in loop.states:
        if pair.grows is not None:
            info = next(slot.info for slot in space.slots if slot.name == pair.input)
            return max(1, shapes[pair.output][pair.grows] - info.shape[pair.grows])
    if _is_tokens(primary) and primary.example.ndim > 1:
        return int(primary.example.shape[1])
    return 1


def _drive(
    slot: Slot, primary: Slot, chunk: str | None, *, has_tokens: bool, names: _Dims
) -> Drive:
    words = set(words_of(slot.name))
    integer = slot.dtype.kind in "iu"
    along = names.has(slot, chunk)
    if slot is primary:
        return Drive.TOKENS if has_tokens else Drive.CHUNK
    if integer and words & _ROW_WORDS and slot.example.ndim == 1:
        return Drive.ROWS
    if slot.role is Role.MASK or slot.additive or _is_float_mask(slot, words):
        return Drive.MASK
    if integer and words & _POSITION_WORDS:
        return Drive.POSITIONS if along or slot.example.ndim == 2 else Drive.START
    if integer and words & _LENGTH_WORDS:
        return Drive.LENGTH
    if along or (chunk is None and not has_tokens) or integer:
        return Drive.CHUNK
    return Drive.CONTEXT


def _is_float_mask(slot: Slot, words: set[str]) -> bool:
    binary = bool(np.isin(slot.example, (0, 1)).all())
    return "mask" in words and slot.role is Role.FLOAT and binary


def _logits(primary: Slot, outputs: tuple[OutputInfo, ...], answers: tuple[str, ...]) -> str | None:
    """The float answer whose last dim is the vocabulary."""
    if not _is_tokens(primary):
        return None
    for output in outputs:
        floats = output.name in answers and "float" in output.dtype
        if floats and len(output.shape) >= 2 and output.shape[-1] >= (primary.high or 0):
            return output.name
    return None
