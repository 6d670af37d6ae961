"""Operators of `com.microsoft` that compute with integers. These are multiplied in float64, which holds every product of theirs exactly."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import pooling
from onnxproof.runtimes.evaluator.activations import sigmoid
from onnxproof.runtimes.evaluator.contrib.operator import DOMAIN, Contrib, add_bias
from onnxproof.runtimes.evaluator.normalization import softmax
from onnxproof.runtimes.evaluator.quantized import (
    convolve_quantized,
    quantize_dynamically,
    saturate,
    spread,
)

Array = np.ndarray[Any, Any]


def dequantize(
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
        y = dequantize(integers, scale, zero) @ dequantize(b, b_scale, b_zero)
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
        y = dequantize(a, a_scale, a_zero, axis=a.ndim - 2) @ dequantize(b, b_scale, b_zero)
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
        product = dequantize(a, None, operands.a_zero) @ dequantize(b, None, operands.b_zero)
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
        y = np.concatenate([dequantize(*triple) for triple in triples], axis=axis)
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
            y = function(dequantize(a, a_scale, a_zero), dequantize(b, b_scale, b_zero))
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
            y = function(dequantize(x, x_scale, x_zero), **attributes)
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
        real = dequantize(x, x_scale, x_zero)
        if channels_last:
            real = np.moveaxis(real, -1, 1)
        (y,) = super()._run(real, **attributes)
        if channels_last:
            y = np.moveaxis(y, 1, -1)
        return (_quantize(y, y_scale, y_zero),)


class QLinearWhere(Contrib):
    """One of two tensors, each rounded anew to the scale of the output."""

    def _run(self, condition: Array, *inputs: Array, **_: Any) -> tuple[Array]:
        x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = inputs
        z = np.where(condition, dequantize(x, x_scale, x_zero), dequantize(y, y_scale, y_zero))
        return (_quantize(z, scale, zero),)


OPERATORS: dict[str, type[OpRun]] = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
    "QGemm": QGemm,
    "QLinearConcat": QLinearConcat,
    "QLinearConv": QLinearConv,
    "QLinearWhere": QLinearWhere,
    "QLinearAdd": _binary(np.add),
    "QLinearMul": _binary(np.multiply),
    "QLinearSigmoid": _unary(sigmoid),
    "QLinearLeakyRelu": _unary(_leaky_relu),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearGlobalAveragePool": _unary(_global_average_pool),
    "QLinearAveragePool": QLinearAveragePool,
}
