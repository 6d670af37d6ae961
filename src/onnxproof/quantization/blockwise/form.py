"""How a matrix of few bits is stored: bits, block length and zero points; integers, scales and zero points packed as ONNX Runtime's operators read them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BITS = (2, 4, 8)
"""What MatMulNBits runs on ONNX Runtime's CPU: 1, 3, 5, 6 and 7 bits are refused when the session opens (1.31.1, measured by `bench/int4_bits.py`)."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Form:
    """Bits of an integer, members of a block, and whether each block has a zero point of its own."""

    bits: int
    block: int
    zero_points: bool = False

    def __str__(self) -> str:
        """For people: `4 bits, blocks of 32 with zero points`."""
        words = f"{self.bits} bits, blocks of {self.block}"
        return f"{words} with zero points" if self.zero_points else words

    @property
    def top(self) -> int:
        """The largest integer."""
        return (1 << self.bits) - 1

    def size(self, rows: int, columns: int) -> int:
        """Bytes of a matrix in a file: packed integers, scales in half precision, packed zero points."""
        blocks = -(-columns // self.block)
        size = rows * blocks * (self.block * self.bits // 8 + 2)
        if self.zero_points:
            size += rows * -(-blocks * self.bits // 8)
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """A rounded matrix: one row an output, blocks along the row."""

    form: Form
    integers: Array
    """uint8, rows by columns."""
    scales: Array
    """float16, rows by blocks."""
    zeros: Array
    """uint8, rows by blocks; the middle of the range where the form has no zero points."""

    def values(self) -> Array:
        """The weights that it stands for, in float32."""
        columns = self.integers.shape[1]
        steps = spread(self.scales.astype(np.float32), self.form.block, columns)
        middle = spread(self.zeros.astype(np.float32), self.form.block, columns)
        return np.asarray((self.integers - middle) * steps)

    def packed(self) -> Array:
        """Rows by blocks by bytes; the last block is filled up with zeros."""
        rows, columns = self.integers.shape
        blocks = self.scales.shape[1]
        whole = np.zeros((rows, blocks * self.form.block), np.uint8)
        whole[:, :columns] = self.integers
        return pack(whole, self.form.bits).reshape(rows, blocks, -1)

    def packed_zeros(self) -> Array:
        """Rows by bytes."""
        return pack(self.zeros, self.form.bits)


def spread(numbers: Array, block: int, columns: int) -> Array:
    """The number of each block for every member of it."""
    return np.repeat(numbers, block, axis=1)[:, :columns]


def pack(integers: Array, bits: int) -> Array:
    """As many integers in a byte as fit, the first in its low bits; a last byte is filled up with zeros."""
    in_byte = 8 // bits
    rows, columns = integers.shape
    whole = np.zeros((rows, -(-columns // in_byte) * in_byte), np.uint8)
    whole[:, :columns] = integers
    parts = whole.reshape(rows, -1, in_byte)
    shifts = np.arange(in_byte, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(parts << shifts, axis=2))
