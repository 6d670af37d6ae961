"""Operators of `com.microsoft` that compute with integers. These are multiplied in float64, which holds every product of theirs exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator import pooling
from onnxproof.runtimes.evaluator.activations import sigmoid
from onnxproof.runtimes.evaluator.normalization import softmax
from onnxproof.runtimes.evaluator.quantized import (
    convolve_quantized,
    quantize_dynamically,
    saturate,
    spread,
)

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


class Contrib(OpRun):
    """No schema of the standard, so defaults are those of the signatures here."""

    op_schema = None
    op_domain = DOMAIN


def add_bias(y: Array, bias: Array | None) -> Array:
    """The sum with a bias, where there is one."""
    if bias is None:
        return y
    return y + bias


def _dequantize(
    x: Array,
    scale: Array | None,
    zero: Array | None,
    axis: int = -1,
) -> Array:
    """What integers stand for; several scales or zero points go along one axis."""
    wide = x.astype(np.float64)
    if zero is not None:
        wide = wide - spread(zero, x.shape, axis, 0).astype(np.float64)
    if scale is None:
        return wide
    return wide * spread(scale, x.shape, axis, 0).astype(np.float64)


def _quantize(y: Array, scale: Array, zero: Array | None) -> Array:
    """The integers of an output; without a zero point it is a uint8 around 0."""
    dtype, offset = np.dtype(np.uint8), np.zeros(())
    if zero is not None:
        dtype, offset = zero.dtype, zero.astype(np.float64).reshape(())
    limits = np.iinfo(dtype)
    integers = np.rint(y / scale.astype(np.float64).reshape(())) + offset
    return saturate(integers, limits.min, limits.max).astype(dtype)


class DynamicQuantizeMatMul(Contrib):
    """The left side is rounded to 8 bits as DynamicQuantizeLinear does, the right side is integers."""

    def _run(
        self,
        a: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array | None = None,
        bias: Array | None = None,
        **_: Any,
    ) -> tuple[Array]:
        integers, scale, zero = quantize_dynamically(a)
        y = _dequantize(integers, scale, zero) @ _dequantize(b, b_scale, b_zero)
        return (add_bias(y, bias).astype(a.dtype),)


class MatMulIntegerToFloat(Contrib):
    """A product of integers, scaled."""

    def _run(
        self,
        a: Array,
        b: Array,
        a_scale: Array,
        b_scale: Array,
        a_zero: Array | None = None,
        b_zero: Array | None = None,
        bias: Array | None = None,
        **_: Any,
    ) -> tuple[Array]:
        y = _dequantize(a, a_scale, a_zero, axis=a.ndim - 2) @ _dequantize(b, b_scale, b_zero)
        return (add_bias(y, bias).astype(a_scale.dtype),)


@dataclass(frozen=True, slots=True)
class _GemmOperands:
    """The inputs of QGemm, in its order."""

    a: Array
    a_scale: Array
    a_zero: Array
    b: Array
    b_scale: Array
    b_zero: Array
    c: Array | None = None
    """In the scale of the product."""
    y_scale: Array | None = None
    y_zero: Array | None = None


class QGemm(Contrib):
    """Gemm of integers; the bias has the scale of the product, and without an output scale the answer is a float."""

    def _run(
        self,
        *inputs: Any,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        operands = _GemmOperands(*inputs)
        a = operands.a.T if transA else operands.a
        b = operands.b.T if transB else operands.b
        product = _dequantize(a, None, operands.a_zero) @ _dequantize(b, None, operands.b_zero)
        scale = alpha * operands.a_scale.astype(np.float64) * operands.b_scale.astype(np.float64)
        y = add_bias(product, operands.c) * scale
        if operands.y_scale is None:
            return (y.astype(operands.a_scale.dtype),)
        return (_quantize(y, operands.y_scale, operands.y_zero),)


class QLinearConcat(Contrib):
    """Each part is rounded anew to the scale of the whole."""

    def _run(
        self,
        y_scale: Array,
        y_zero: Array,
        *parts: Array,
        axis: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        y = np.concatenate([_dequantize(*triple) for triple in triples], axis=axis)
        return (_quantize(y, y_scale, y_zero),)


class QLinearConv(Contrib):
    """The standard's, or with the channels last."""

    def _run(
        self,
        *args: Any,
        channels_last: int = 0,
        **attributes: Any,
    ) -> tuple[Array]:
        if not channels_last:
            return (convolve_quantized(*args, **attributes),)
        x, *others = args
        y = convolve_quantized(np.moveaxis(x, -1, 1), *others, **attributes)
        return (np.moveaxis(y, 1, -1),)


def _binary(function: Callable[[Array, Array], Array]) -> type[OpRun]:
    class QLinearBinary(Contrib):
        def _run(
            self,
            a: Array,
            a_scale: Array,
            a_zero: Array | None,
            b: Array,
            b_scale: Array,
            b_zero: Array | None,
            y_scale: Array,
            y_zero: Array | None = None,
            **_: Any,
        ) -> tuple[Array]:
            y = function(_dequantize(a, a_scale, a_zero), _dequantize(b, b_scale, b_zero))
            return (_quantize(y, y_scale, y_zero),)

    return QLinearBinary


def _unary(function: Callable[..., Array]) -> type[OpRun]:
    class QLinearUnary(Contrib):
        def _run(
            self,
            x: Array,
            x_scale: Array,
            x_zero: Array | None,
            y_scale: Array,
            y_zero: Array | None = None,
            **attributes: Any,
        ) -> tuple[Array]:
            y = function(_dequantize(x, x_scale, x_zero), **attributes)
            return (_quantize(y, y_scale, y_zero),)

    return QLinearUnary


def _softmax(
    x: Array,
    *,
    axis: int = -1,
    opset: int = 13,
    **_: Any,
) -> Array:
    if opset < 13:  # all axes from `axis` on are one
        rows = int(np.prod(x.shape[:axis]))
        return softmax(x.reshape(rows, -1), -1).reshape(x.shape)
    return softmax(x, axis)


def _leaky_relu(x: Array, *, alpha: float = 0.01, **_: Any) -> Array:
    return np.where(x > 0, x, alpha * x)


def _global_average_pool(x: Array, *, channels_last: int = 0, **_: Any) -> Array:
    first = 1 if channels_last else 2
    axes = tuple(range(first, first + x.ndim - 2))
    return np.asarray(x.mean(axis=axes, keepdims=True))


class QLinearAveragePool(pooling.AveragePool):
    """The mean of every window; channels may be last."""

    op_schema = None
    op_domain = DOMAIN

    def _run(  # type: ignore[override]
        self,
        x: Array,
        x_scale: Array,
        x_zero: Array | None,
        y_scale: Array,
        y_zero: Array | None = None,
        *,
        channels_last: int = 0,
        **attributes: Any,
    ) -> tuple[Array]:
        real = _dequantize(x, x_scale, x_zero)
        if channels_last:
            real = np.moveaxis(real, -1, 1)
        (y,) = super()._run(real, **attributes)
        if channels_last:
            y = np.moveaxis(y, 1, -1)
        return (_quantize(y, y_scale, y_zero),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BlockAttributes:
    """The attributes of MatMulNBits, under its names: rows and columns of the weights, and how they are packed."""

    K: int
    N: int
    bits: int = 4
    block_size: int = 128


class MatMulNBits(Contrib):
    """Weights of 4 or 8 bits in blocks along the summed axis, low nibble first; without zero points the middle is the zero."""

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
        if packing.bits not in (4, 8) or groups is not None:
            raise NotImplementedError("MatMulNBits with other than 4 or 8 bits, or with g_idx")
        rows, size = packing.N, packing.block_size
        blocks = -(-packing.K // size)
        unpacked = _unpack(b.reshape(rows, -1), packing.bits)[:, : blocks * size]
        integers = unpacked.reshape(rows, blocks, size).astype(np.float64)
        block_scales = scales.reshape(rows, blocks, 1).astype(np.float64)
        weights = (integers - _block_zeros(zeros, rows, blocks, packing.bits)) * block_scales
        y = a @ weights.reshape(rows, -1)[:, : packing.K].T
        return (add_bias(y, bias).astype(a.dtype),)


def _block_zeros(
    zeros: Array | None,
    rows: int,
    blocks: int,
    bits: int,
) -> Array:
    if zeros is None:
        return np.full((1, 1, 1), 2.0 ** (bits - 1))
    if zeros.dtype == np.uint8:
        zeros = _unpack(zeros.reshape(rows, -1), bits)[:, :blocks]
    return zeros.reshape(rows, blocks, 1).astype(np.float64)


def _unpack(packed: Array, bits: int) -> Array:
    """The numbers of each row, two in a byte where they have four bits."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


@dataclass(frozen=True, slots=True)
class _AttentionInputs:
    """The inputs of QAttention, in its order."""

    x: Array
    w: Array
    bias: Array
    x_scale: Array
    w_scale: Array
    mask: Array | None = None
    """The length of each row, or 0 where a key is hidden."""
    x_zero: Array | None = None
    w_zero: Array | None = None
    past: Array | None = None


class QAttention(Contrib):
    """Self-attention whose projection is a product of integers; lengths or a mask of the keys hide places."""

    def _run(
        self,
        *inputs: Any,
        num_heads: int,
        unidirectional: int = 0,
        do_rotary: int = 0,
        mask_filter_value: float = -10000.0,
        scale: float = 0.0,
        **_: Any,
    ) -> tuple[Array]:
        operands = _AttentionInputs(*inputs)
        batch, length = operands.x.shape[:2]
        known_mask = operands.mask is None or operands.mask.shape in ((batch,), (batch, length))
        if operands.past is not None or do_rotary or not known_mask:
            raise NotImplementedError(
                "QAttention with a past, with rotary positions, or with a mask of another kind"
            )
        values = _dequantize(operands.x, operands.x_scale, operands.x_zero)
        weights = _dequantize(operands.w, operands.w_scale, operands.w_zero)
        projected = values @ weights + operands.bias
        q, k, v = projected.reshape(batch, length, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) * (scale or 1.0 / np.sqrt(q.shape[-1]))
        if unidirectional:
            scores = scores + np.where(np.tri(length, dtype=bool), 0.0, mask_filter_value)
        if operands.mask is not None:
            hidden = np.where(_visible_keys(operands.mask, length), 0.0, mask_filter_value)
            scores = scores + hidden[:, None, None, :]
        y = softmax(scores, -1) @ v
        merged = y.transpose(0, 2, 1, 3).reshape(batch, length, -1)
        return (merged.astype(operands.x_scale.dtype),)


def _visible_keys(mask: Array, length: int) -> Array:
    if mask.ndim == 1:
        return np.asarray(np.arange(length) < mask[:, None])
    return np.asarray(mask != 0)


OPERATORS: dict[str, type[OpRun]] = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
    "QGemm": QGemm,
    "QAttention": QAttention,
    "MatMulNBits": MatMulNBits,
    "QLinearConcat": QLinearConcat,
    "QLinearConv": QLinearConv,
    "QLinearAdd": _binary(np.add),
    "QLinearMul": _binary(np.multiply),
    "QLinearSigmoid": _unary(sigmoid),
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearGlobalAveragePool": _unary(_global_average_pool),
    "QLinearAveragePool": QLinearAveragePool,
}
