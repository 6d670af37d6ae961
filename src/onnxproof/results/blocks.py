"""Weights in blocks of few bits: what each matrix costs, and what was tried."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPart:
    """What a part of a matrix adds to its cost."""

    what: str
    """`scales`, `zero points` or `integers`: chosen anew, with all else as it is, they would save this. `row 5`, `block 3`: this lies there."""
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCost:
    """One matrix: how it is stored, what that costs, and what more bits would buy."""

    name: str
    nodes: tuple[str, ...]
    weights: int
    form: str
    bits: float
    """A weight, with scales and zero points."""
    size: int
    cost: float
    """Of the whole cost: measured alone, then scaled so that all of them add up to what the file costs."""
    unit: str = ""
    """`nats` of KL a token, or `noise`: the error's energy over that of the outputs."""
    measured: bool = True
    """False where no time was left, and the cost was estimated by the error of its products."""
    parts: tuple[BlockPart, ...] = ()
    """Of a file that another tool may have made: what in the matrix costs it, the costliest first."""
    next_form: str = ""
    """The form that buys most for its bytes; empty where nothing more is to be had."""
    next_bytes: int = 0
    next_saves: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPair:
    """What the float model and the quantized one write after the same beginning."""

    prompt: str
    reference: str
    candidate: str
    same: str
    """What both write before they part."""
    tokens: int
    """That each of them wrote."""
    first_apart: int | None
    """The first one that differs, from 0; None where all are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPoint:
    """One graph that was tried."""

    name: str
    bits: float
    size: int
    cost: float
    latency_s: float
    best: bool = False
    """True when no other is better in bytes, cost and latency."""
