"""Operators that turn numbers into integers and back, or compute with those integers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.convolution import by_channel, convolve
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class QuantizeLinear(OpRun):
    """The evaluator wraps around at 2**31: 3e9 becomes -128 instead of 127."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
        **attributes: Any,
    ) -> tuple[Array]:
        saturate_floats = attributes.get("saturate", 1)
        if zero is not None:
            dtype = zero.dtype
        else:
            target = output_dtype or onnx.TensorProto.UINT8
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(target))
        ratio = widen(x) / spread(scale, x.shape, axis, block_size)
        limits = _integer_limits(dtype)
        if limits is not None:
            integers = np.rint(ratio)
            if zero is not None:
                offset = spread(zero, x.shape, axis, block_size)
                integers = integers + offset.astype(ratio.dtype)
            return (saturate(integers, *limits).astype(dtype),)
        if saturate_floats:
            return (onnx.numpy_helper.saturate_cast(ratio, dtype),)
        return (ratio.astype(dtype),)


class DequantizeLinear(OpRun):
    """The evaluator has none before opset 19, and subtracts in float32: int32 biases beyond 2**24 are rounded."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        wide = x.astype(np.float64)
        if zero is not None:
            wide = wide - spread(zero, x.shape, axis, block_size).astype(np.float64)
        dtype = scale.dtype
        if output_dtype:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(output_dtype)
        scales = spread(scale, x.shape, axis, block_size).astype(np.float64)
        return ((wide * scales).astype(dtype),)


class DynamicQuantizeLinear(OpRun):
    """The evaluator computes the scale in float32."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array, Array]:
        return quantize_dynamically(x)


def quantize_dynamically(x: Array) -> tuple[Array, Array, Array]:
    """The tensor as uint8, with the scale and zero point that hold its range.

    The scale is as precise as the tensor; the integers are decided in float32, as the standard says: a value between two of them would go another way in float64.
    """
    low, high = x.min(initial=0), x.max(initial=0)
    step = (high - low) / x.dtype.type(255) if high > low else 1
    scale = np.asarray(step, x.dtype)
    narrow, narrow_low = x.astype(np.float32), np.float32(low)
    narrow_scale = np.float32(1)
    if high > low:
        narrow_scale = (np.float32(high) - narrow_low) / np.float32(255)
    zero = np.clip(np.rint(-narrow_low / narrow_scale), 0, 255)
    integers = saturate(np.rint(narrow / narrow_scale) + zero, 0, 255).astype(np.uint8)
    return integers, scale, np.asarray(zero, np.uint8)


class QLinearConv(OpRun):
    """The evaluator adds the zero point before it rounds, which turns ties around, and takes only images for per-channel scales."""

    def _run(self, *args: Any, **attributes: Any) -> tuple[Array]:
        return (convolve_quantized(*args, **attributes),)


def convolve_quantized(x: Array, *others: Any, **attributes: Any) -> Array:
    """Integers in, integers out; `others` are the inputs of QLinearConv from the second on."""
    operands = _QuantizedConvolution(*others)
    zero = operands.y_zero.astype(np.float64)
    limits = np.iinfo(operands.y_zero.dtype)
    scaled = operands.convolve(x, attributes) * operands.factor()
    return saturate(np.rint(scaled) + zero, limits.min, limits.max).astype(operands.y_zero.dtype)


@dataclass(frozen=True, slots=True)
class _QuantizedConvolution:
    """The inputs of QLinearConv beside the image, in the standard's order."""

    x_scale: Array
    x_zero: Array
    w: Array
    w_scale: Array
    w_zero: Array
    y_scale: Array
    y_zero: Array
    bias: Array | None = None
    """In the scale of the sums."""

    def convolve(self, x: Array, attributes: dict[str, Any]) -> Array:
        """The sums of products, without their scale."""
        bias = self.bias
        if bias is not None:
            bias = bias.astype(np.float64)
        return convolve(
            x.astype(np.float64) - self.x_zero.astype(np.float64),
            self.w.astype(np.float64) - _by_filter(self.w_zero, self.w.ndim),
            bias,
            **attributes,
        )

    def factor(self) -> Array:
        """From the scale of the sums to that of the output, for all channels or for each."""
        factor = self.x_scale.astype(np.float64) * self.w_scale / self.y_scale
        if np.size(factor) > 1:
            return by_channel(factor, self.w.ndim)
        return factor.reshape(())


def _by_filter(zero: Array, rank: int) -> Array:
    """A zero point for all filters, or one for each."""
    wide = zero.astype(np.float64)
    if zero.size > 1:
        return wide.reshape(-1, *(1,) * (rank - 1))
    return wide.reshape(())


def spread(
    values: Array,
    shape: Sequence[int],
    axis: int,
    block: int,
) -> Array:
    """A scale or zero point in a shape that goes with the tensor: one for all, one for each slice, or one for each block."""
    if values.size == 1:
        return values.reshape(())
    if block:
        return np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    dims = [1] * len(shape)
    dims[axis] = values.size
    return values.reshape(dims)


def _integer_limits(dtype: np.dtype[Any]) -> tuple[int, int] | None:
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    packed = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
    return packed.get(dtype.name)


def saturate(values: Array, low: int, high: int) -> Array:
    """The values clipped to the limits; NaN is 0."""
    return np.asarray(np.clip(np.nan_to_num(values, nan=0.0), low, high))
