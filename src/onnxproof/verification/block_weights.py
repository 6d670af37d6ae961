"""Weights of a few bits with a scale for each block of them: which of the reference's weights they were made from, and what such a rounding costs.

A file with weights of 4 bits can't be as near to its reference as one with 8. What it must lose is measured: the reference itself is run with its own
weights rounded to as many bits in as large blocks, to the nearest step. A file that loses no more than that says what the reference says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnxproof.runtimes.evaluator.contrib.blocks import unpack

Array = np.ndarray[Any, Any]
_SAME_WEIGHT = 0.35
"""Relative rms between a weight of few bits and the float one it was made from. Two weights that have nothing in common leave
1.4 by arithmetic. The limit is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How numbers of a few bits are kept."""

    bits: int
    block: int
    columns: int

    @property
    def blocks(self) -> int:
        """Of a row."""
        return -(-self.columns // self.block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Which inputs of its node hold a weight, and in what form."""

    data: int = 1
    scales: int = 2
    zeros: int = 3
    groups: int | None = None
    typed: bool = False
    """Integers of a type of their own (INT4, UINT8, ...) in the place of packed bytes."""
    signed: bool = False
    """Typed integers that begin below zero: they are kept here as if they began at zero."""
    turned: bool = False
    """Blocks run down the columns."""
    float_zeros: bool = False
    """Zero points are stored as numbers, which need not be whole (HQQ)."""
    scales_shape: tuple[int, ...] = ()
    scales_dtype: str = "float32"
    size: int = 0
    """Bytes in the file: integers, scales, zero points and groups."""


@dataclass(frozen=True, eq=False)
class BlockWeight:
    """The weight of one MatMulNBits, GatherBlockQuantized or DequantizeLinear in blocks: a row for each result of a product, or for each entry of a table."""

    node: onnx.NodeProto
    packing: Packing
    packed: Array
    scales: Array
    """A row of scales for each row of weights."""
    zeros: Array | None = None
    """Zero points as numbers; without any the middle of the range is 0."""
    groups: Array | None = None
    """The block of each column; without it, neighbours are a block."""
    storage: Storage = Storage()

    @property
    def name(self) -> str:
        """Of its node."""
        return self.node.name or self.node.output[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.scales), self.packing.columns

    @cached_property
    def integers(self) -> Array:
        """The numbers of a few bits, by row and column."""
        rows = self.packed.reshape(len(self.scales), -1)
        return unpack(rows, self.packing.bits)[:, : self.packing.columns].astype(np.float64)

    @property
    def top(self) -> int:
        """The largest integer."""
        return int(2**self.packing.bits) - 1

    @property
    def block_of_column(self) -> Array:
        """Which block each column belongs to."""
        if self.groups is not None:
            return self.groups
        return np.arange(self.packing.columns) // self.packing.block

    @property
    def floats(self) -> Array:
        """The numbers that the weight stands for."""
        columns = self.block_of_column
        return (self.integers - self.offsets[:, columns]) * self.scales[:, columns]

    @property
    def offsets(self) -> Array:
        """The integer that stands for 0, by row and block."""
        if self.zeros is not None:
            return self.zeros
        return np.full_like(self.scales, 2.0 ** (self.packing.bits - 1))

    def rounded(self, weight: Array) -> Array:
        """Another weight, rounded to the nearest of as many levels in the same blocks."""
        columns = self.block_of_column
        levels = 2**self.packing.bits
        made = np.empty_like(weight, np.float64)
        for block in np.unique(columns):
            part = weight[:, columns == block].astype(np.float64)
            made[:, columns == block] = _round(part, levels, middle=self.zeros is None)
        return made


def _round(part: Array, levels: int, *, middle: bool) -> Array:
    """The blocks of all rows; `middle` says that 0 is the middle level."""
    if middle:
        ends = np.abs(part).max(axis=1, keepdims=True)
        step = np.maximum(ends, np.finfo(np.float32).tiny) / (levels / 2 - 0.5)
        return np.asarray(np.clip(np.rint(part / step), -levels // 2, levels // 2 - 1) * step)
    low = np.minimum(part.min(axis=1, keepdims=True), 0.0)
    high = np.maximum(part.max(axis=1, keepdims=True), 0.0)
    step = np.maximum(high - low, np.finfo(np.float32).tiny) / (levels - 1)
    zero = np.rint(-low / step)
    return np.asarray((np.clip(np.rint(part / step) + zero, 0, levels - 1) - zero) * step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A weight of the reference that some rows of a block weight were made from."""

    name: str
    rows: slice
    turned: bool
    """Whether the reference keeps it transposed."""
    floats: Array
    """As rows of the block weight."""


def find_origins(
    weights: Sequence[BlockWeight], floats: Mapping[str, Array]
) -> dict[str, list[Origin]]:
    """For each weight (by its node's name) the reference's own, several where they were joined; those without any are left out.

    1. By value: the float weight that the rows are nearest to.
    2. Those left, by elimination: the reference's remaining weights of the shape, in order. So a weight that was damaged beyond recognition has its own.
    """
    origins: dict[str, list[Origin]] = {}
    used: set[str] = set()
    for weight in weights:  # step 1
        pieces = _pieces(weight, floats)
        if pieces:
            origins[weight.name] = pieces
            used.update(piece.name for piece in pieces)
    for weight in weights:  # step 2
        if weight.name in origins:
            continue
        left = [piece for piece in _whole(weight, floats) if piece.name not in used]
        if left:
            origins[weight.name] = left[:1]
            used.add(left[0].name)
    return origins


def _whole(weight: BlockWeight, floats: Mapping[str, Array]) -> Iterator[Origin]:
    rows = slice(0, weight.shape[0])
    for name, array in floats.items():
        if array.ndim != 2:
            continue
        for turned in (False, True):
            layout = array.T if turned else array
            if layout.shape == weight.shape:
                yield Origin(name=name, rows=rows, turned=turned, floats=layout)


def _pieces(weight: BlockWeight, floats: Mapping[str, Array]) -> list[Origin]:
    """The reference's weights that the rows were made from, one after the other; empty where some rows are nobody's."""
    values = weight.floats
    pieces: list[Origin] = []
    start = 0
    while start < len(values):
        piece = _nearest(values[start:], start, floats)
        if piece is None:
            return []
        pieces.append(piece)
        start = piece.rows.stop
    return pieces


def _nearest(values: Array, start: int, floats: Mapping[str, Array]) -> Origin | None:
    """The float weight that these rows begin with."""
    best: Origin | None = None
    least = _SAME_WEIGHT
    for name, array in floats.items():
        if array.ndim != 2:
            continue
        for turned in (False, True):
            layout = array.T if turned else array
            rows = len(layout)
            if layout.shape[1] != values.shape[1] or rows > len(values):
                continue
            error = relative_difference(values[:rows], layout)
            if error < least:
                least = error
                place = slice(start, start + rows)
                best = Origin(name=name, rows=place, turned=turned, floats=layout)
    return best


def relative_difference(values: Array, other: Array) -> float:
    """The rms of the difference over that of the second one."""
    size = float(np.sqrt(np.mean(np.square(other, dtype=np.float64))))
    difference = float(np.sqrt(np.mean(np.square(values - other, dtype=np.float64))))
    if size == 0.0:
        return 0.0 if difference == 0.0 else float("inf")
    return difference / size
