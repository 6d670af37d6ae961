"""Weights of a few bits with one scale for each block of them."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


def unpack(packed: Array, bits: int) -> Array:
    """The numbers along the last axis, as many in a byte as fit, those of the low bits first."""
    if bits == 8:
        return packed
    if bits not in (1, 2, 4):
        return _unpack_across_bytes(packed, bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = packed[..., None] >> shifts & np.uint8(2**bits - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


def _unpack_across_bytes(packed: Array, bits: int) -> Array:
    """The same for widths that do not divide a byte: the bits of all bytes are one stream."""
    stream = np.unpackbits(packed, axis=-1, bitorder="little")
    count = stream.shape[-1] // bits
    digits = stream[..., : count * bits].reshape(*packed.shape[:-1], count, bits)
    return np.asarray((digits * (1 << np.arange(bits))).sum(axis=-1).astype(np.uint8))


def dequantize_rows(
    packed: Array,
    scales: Array,
    zeros: Array | None,
    *,
    columns: int,
    bits: int,
    block: int,
) -> Array:
    """Rows of weights in float64; the last axis of `packed` is one row, and each row begins with a new block.

    Without zero points the middle of the range stands for 0. Zero points are packed like the weights, or floats.
    """
    rows = packed.shape[:-1]
    blocks = -(-columns // block)
    integers = unpack(packed, bits)[..., : blocks * block].astype(np.float64)
    integers = integers.reshape(*rows, blocks, -1)
    middle: Any = 2.0 ** (bits - 1)
    if zeros is not None:
        numbers = zeros.reshape(*rows, -1)
        if zeros.dtype == np.uint8:
            numbers = unpack(numbers, bits)
        middle = numbers[..., :blocks].astype(np.float64)[..., None]
    weights = (integers - middle) * scales.reshape(*rows, blocks, 1).astype(np.float64)
    return np.asarray(weights.reshape(*rows, -1)[..., :columns])


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockAttributes:
    """The attributes of MatMulNBits, under its names: rows and columns of the weights, and how they are packed."""

    K: int
    N: int
    bits: int = 4
    block_size: int = 128
    weight_prepacked: int = 0
    rounds_to: int = 0
    """Not the operator's own: the accuracy level whose rounding of the left side is to be simulated."""


ROUNDS_TO = "rounds_to"
_HALF, _BFLOAT, _EIGHT_BITS = 2, 3, 4
"""Accuracy levels that allow a kernel to round its left side, and to what."""


def _round_left(a: Array, level: int, block: int) -> Array:
    """The left side as a kernel of this accuracy level may take it: in half precision, or in 8 bits with a scale for each block."""
    if level == _HALF:
        return a.astype(np.float16).astype(np.float64)
    if level == _BFLOAT:
        return a.astype(ml_dtypes.bfloat16).astype(np.float64)
    if level != _EIGHT_BITS:
        return a
    columns = a.shape[-1]
    padded = np.pad(a, [*[(0, 0)] * (a.ndim - 1), (0, -columns % block)])
    blocks = padded.reshape(*a.shape[:-1], -1, block)
    step = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    rounded = np.rint(blocks / np.where(step == 0, 1.0, step)) * step
    return np.asarray(rounded.reshape(padded.shape)[..., :columns])


class MatMulNBits(Contrib):
    """A product with weights of 2 to 8 bits in blocks along the summed axis.

    `accuracy_level` only allows a kernel to round its left side (to half precision, or to 8 bits for each block): the product that is meant is the same.
    With `g_idx` column k takes the scale and zero point of block g_idx[k] instead of those of its own place.
    """

    def _run(
        self,
        a: Array,
        b: Array,
        scales: Array,
        zeros: Array | None = None,
        groups: Array | None = None,
        bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        packing = attribute_reader.read(_BlockAttributes, attributes)
        if packing.weight_prepacked:
            raise NotImplementedError("MatMulNBits with weights in the layout of one device")
        packed = b.reshape(packing.N, -1)
        if groups is None:
            weights = dequantize_rows(
                packed,
                scales,
                zeros,
                columns=packing.K,
                bits=packing.bits,
                block=packing.block_size,
            )
        else:
            weights = _dequantize_by_group(packed, scales, zeros, groups, packing)
        left = _round_left(widen(a), packing.rounds_to, packing.block_size)
        return (add_bias(left @ weights.T, bias).astype(a.dtype),)


def _dequantize_by_group(
    packed: Array,
    scales: Array,
    zeros: Array | None,
    groups: Array,
    packing: _BlockAttributes,
) -> Array:
    """Weights whose blocks are named column by column."""
    columns = groups.reshape(-1)[: packing.K]
    blocks = -(-packing.K // packing.block_size)
    integers = unpack(packed, packing.bits)[:, : packing.K].astype(np.float64)
    middle: Any = 2.0 ** (packing.bits - 1)
    if zeros is not None:
        numbers = zeros.reshape(packing.N, -1)
        if zeros.dtype == np.uint8:
            numbers = unpack(numbers, packing.bits)
        middle = numbers[:, columns].astype(np.float64)
    return np.asarray(
        (integers - middle) * scales.reshape(packing.N, blocks)[:, columns].astype(np.float64)
    )


class GatherBlockQuantized(Contrib):
    """Rows of a table of integers, as the numbers that they stand for; an index beyond the table gives zeros."""

    def _run(
        self,
        data: Array,
        indices: Array,
        scales: Array,
        zeros: Array | None = None,
        bits: int = 4,
        block_size: int = 128,
        gather_axis: int = 0,
        quantize_axis: int = 1,
        **_: Any,
    ) -> tuple[Array]:
        integers, offset = _table(data, zeros, bits)
        along = quantize_axis % data.ndim
        length = integers.shape[along]
        size = block_size or length
        table = integers - _repeat(offset, size, along, length)
        table = table * _repeat(scales.astype(np.float64), size, along, length)
        count = table.shape[gather_axis]
        inside = (indices >= -count) & (indices < count)
        rows = np.take(table, np.where(inside, indices, 0), axis=gather_axis)
        start = gather_axis % data.ndim
        shape = (*(1,) * start, *indices.shape, *(1,) * (data.ndim - 1 - start))
        return (np.where(inside.reshape(shape), rows, 0.0).astype(scales.dtype),)


def _table(data: Array, zeros: Array | None, bits: int) -> tuple[Array, Array]:
    """The integers, and the zero point of each block; packed ones are in the middle of their range without any."""
    if data.dtype != np.uint8:
        offset = np.zeros((1,) * data.ndim)
        if zeros is not None:
            offset = zeros.astype(np.float64)
        return data.astype(np.float64), offset
    integers = unpack(data, bits).astype(np.float64)
    if zeros is None:
        return integers, np.full((1,) * data.ndim, 2.0 ** (bits - 1))
    return integers, unpack(zeros, bits).astype(np.float64)


def _repeat(values: Array, size: int, axis: int, length: int) -> Array:
    """Each block's number for every member of the block; one number for all stays one."""
    if values.shape[axis] == 1:
        return values
    return np.repeat(values, size, axis=axis).take(range(length), axis=axis)


_NORMAL_FLOAT = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)
"""The sixteen values of NF4 (QLoRA, appendix E)."""
_FLOAT4 = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
"""The eight sizes of FP4 as bitsandbytes orders them; the fourth bit is the sign."""


class MatMulBnb4(Contrib):
    """A product with 4-bit floats of bitsandbytes; the high nibble comes first, and blocks run through all rows."""

    def _run(
        self,
        a: Array,
        b: Array,
        absmax: Array,
        K: int = 0,
        N: int = 0,
        block_size: int = 64,
        quant_type: int = 1,
        transB: int = 1,
        **_: Any,
    ) -> tuple[Array]:
        values = np.array(_NORMAL_FLOAT)
        if quant_type == 0:
            values = np.array([*_FLOAT4, *(-size for size in _FLOAT4)])
        codes = np.stack([b >> 4, b & 15], axis=-1).reshape(-1)[: N * K]
        sizes = np.repeat(absmax.astype(np.float64), block_size)[: N * K]
        weights = (values[codes] * sizes).reshape(N, K)
        right = weights.T if transB else weights
        return ((widen(a) @ right).astype(a.dtype),)


OPERATORS: dict[str, type[OpRun]] = {
    "GatherBlockQuantized": GatherBlockQuantized,
    "MatMulBnb4": MatMulBnb4,
    "MatMulNBits": MatMulNBits,
}
