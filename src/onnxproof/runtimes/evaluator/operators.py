"""Operators that onnx's own evaluator lacks, gets wrong, or computes in float32 whatever it is given.

Measured against PyTorch in float64 with onnx 1.23; each docstring says what was wrong.
They are pure numpy, and they compute in the dtype that they are given, but never in less than float32.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_unpool import MaxUnpool as _StandardMaxUnpool
from onnx.reference.ops.op_negative_log_likelihood_loss import (
    _compute_negative_log_likelihood_loss as _likelihood_loss,
)

from onnxproof.runtimes.evaluator import recurrent, subgraphs, windows

Array = np.ndarray[Any, Any]
_SQRT_HALF, _SQRT_2_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi)


def find(op_type: str, opset: int) -> type[OpRun] | None:
    """Our implementation of an operator of the standard's own domain, or None where the evaluator's is right."""
    if op_type in _BEFORE and opset < _BEFORE[op_type][0]:
        return _BEFORE[op_type][1]
    return _OPERATORS.get(op_type) if opset >= _SINCE.get(op_type, 1) else None


def _wide(x: Array) -> Array:
    """Half precision is widened to float32, as every runtime does; float32 and float64 stay."""
    return x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)


def _erf(x: Array) -> Array:
    wide = x.astype(np.float64)
    return np.fromiter(map(math.erf, wide.reshape(-1).tolist()), np.float64, wide.size).reshape(
        x.shape
    )


class Erf(OpRun):
    """The evaluator rounds to float32 (3e-8)."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (_erf(x).astype(x.dtype),)


class Gelu(OpRun):
    """The evaluator expands it into a function with float32 constants (1e-8)."""

    def _run(self, x: Array, approximate: str = "none", **_: Any) -> tuple[Array]:
        return (gelu(_wide(x), approximate=approximate == "tanh").astype(x.dtype),)


def gelu(x: Array, *, approximate: bool) -> Array:
    """x times the share of a normal distribution below it, or the usual approximation by tanh."""
    inner = (
        np.tanh(_SQRT_2_PI * (x + 0.044715 * x**3))
        if approximate
        else _erf(x * _SQRT_HALF).astype(x.dtype)
    )
    return np.asarray(0.5 * x * (1.0 + inner))


class LeakyRelu(OpRun):
    """The evaluator needs five times the memory of its input."""

    def _run(self, x: Array, alpha: float = 0.01, **_: Any) -> tuple[Array]:
        found = (x * alpha).astype(x.dtype, copy=False)
        np.copyto(found, x, where=x > 0)
        return (found,)


class GatherElements(OpRun):
    """The evaluator goes through `np.choose`, which takes 64 rows at the most."""

    def _run(self, data: Array, indices: Array, axis: int = 0, **_: Any) -> tuple[Array]:
        return (
            np.take_along_axis(
                data, np.where(indices < 0, indices + data.shape[axis], indices), axis=axis
            ),
        )


class HardSwish(OpRun):
    """The evaluator's function rounds a sixth to float32 (4e-9)."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return ((x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)).astype(x.dtype),)


class LogSoftmax(OpRun):
    """The evaluator takes the logarithm of the softmax: minus infinity from a distance of 745 on, and errors before."""

    def _run(self, x: Array, axis: int = -1, **_: Any) -> tuple[Array]:
        return (_log_softmax(x, axis).astype(x.dtype),)


def _softmax(x: Array, axis: int) -> Array:
    power = np.exp(_shifted(x, axis))
    return np.asarray(power / power.sum(axis=axis, keepdims=True))


def _log_softmax(x: Array, axis: int) -> Array:
    shifted = _shifted(x, axis)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _hardmax(x: Array, axis: int) -> Array:
    return np.asarray(np.arange(x.shape[axis]) == x.argmax(axis)[..., None])


def _shifted(x: Array, axis: int) -> Array:
    wide = _wide(x)
    return (
        np.asarray(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)) if x.size else wide
    )


def _flattened(name: str, function: Callable[[Array, int], Array]) -> type[OpRun]:
    """Before opset 13 the input was seen as a matrix: all axes from `axis` on were one. The evaluator uses the one axis."""

    class Flattened(OpRun):
        op_schema = onnx.defs.get_schema(name, 11)

        def _run(self, x: Array, axis: int = 1, **_: Any) -> tuple[Array]:
            rows = math.prod(x.shape[: axis + x.ndim if axis < 0 else axis])
            return (
                function(x.reshape(rows, -1 if x.size else 0), -1).reshape(x.shape).astype(x.dtype),
            )

    return Flattened


class LayerNormalization(OpRun):
    """The evaluator sums in half precision where the standard asks for float32."""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array | None = None,
        axis: int = -1,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array, ...]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        y, mean, inverse = _normalized(_wide(x), axes, epsilon)
        y = y * scale if bias is None else y * scale + bias
        return y.astype(x.dtype), mean, inverse


class InstanceNormalization(OpRun):
    """The evaluator sums in half precision."""

    def _run(
        self, x: Array, scale: Array, bias: Array, epsilon: float = 1e-5, **_: Any
    ) -> tuple[Array]:
        y = _normalized(_wide(x), tuple(range(2, x.ndim)), epsilon)[0]
        return ((y * _channels(scale, x.ndim) + _channels(bias, x.ndim)).astype(x.dtype),)


class GroupNormalization(OpRun):
    """The evaluator expands it into a function that casts to float32 (6e-8)."""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array]:
        grouped = _wide(x).reshape(x.shape[0], num_groups, -1)
        y = _normalized(grouped, (2,), epsilon)[0].reshape(x.shape)
        repeat = x.shape[1] // scale.size  # before opset 21 the scale had one number for each group
        return (
            (
                y * _channels(np.repeat(scale, repeat), x.ndim)
                + _channels(np.repeat(bias, repeat), x.ndim)
            ).astype(x.dtype),
        )


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(axis=axes, keepdims=True)
    apart = x - mean
    inverse = 1.0 / np.sqrt(np.square(apart).mean(axis=axes, keepdims=True) + epsilon)
    return apart * inverse, mean, inverse


def _channels(values: Array, rank: int) -> Array:
    return values.reshape(-1, *(1,) * (rank - 2))


class LRN(OpRun):
    """The evaluator walks the batch where it should walk the channels, so most channels are not normalized."""

    def _run(
        self,
        x: Array,
        alpha: float = 1e-4,
        beta: float = 0.75,
        bias: float = 1.0,
        size: int = 1,
        **_: Any,
    ) -> tuple[Array]:
        before, after, total = (size - 1) // 2, size // 2, np.zeros_like(_wide(x))
        square = np.square(_wide(x))
        for channel in range(x.shape[1]):
            total[:, channel] = square[:, max(0, channel - before) : channel + after + 1].sum(
                axis=1
            )
        return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """The evaluator sums the values instead of their sizes where p is 1."""

    def _run(self, x: Array, axis: int = -1, p: int = 2, **_: Any) -> tuple[Array]:
        wide = _wide(x)
        norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1.0 / p)
        return (np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0).astype(x.dtype),)


class MaxUnpool(_StandardMaxUnpool):
    """With `output_shape` the standard's example counts indices within the inferred shape, ONNX Runtime within the given one."""

    def _run(  # type: ignore[override]
        self, x: Array, indices: Array, output_shape: Array | None = None, **attributes: Any
    ) -> Any:
        if output_shape is not None:
            raise NotImplementedError(
                "MaxUnpool with `output_shape` means different things to the standard and to runtimes"
            )
        return super()._run(x, indices, None, **attributes)  # type: ignore[no-untyped-call]


class SoftmaxCrossEntropyLoss(OpRun):
    """The evaluator takes the logarithm of the softmax: infinite from a distance of 104 on in float32, of 745 in float64."""

    def _run(
        self,
        x: Array,
        target: Array,
        weight: Array | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
        **_: Any,
    ) -> tuple[Array, ...]:
        likelihood = _log_softmax(x, 1).astype(x.dtype)
        loss = _likelihood_loss(
            likelihood, target, weight=weight, reduction=reduction, ignore_index=ignore_index
        )
        return (*loss, likelihood)[: len(self.onnx_node.output)]


class Optional(OpRun):
    """The evaluator makes a list of it, which no OptionalGetElement opens and every OptionalHasElement takes for full."""

    def _run(self, x: Any = None, **_: Any) -> tuple[Any]:
        if x is None:
            raise NotImplementedError("an optional without a value")
        return (x,)


class Pad(OpRun):
    """The evaluator refuses negative pads, which crop."""

    def _run(
        self,
        data: Array,
        pads: Array,
        value: Array | None = None,
        axes: Array | None = None,
        mode: str = "constant",
        **_: Any,
    ) -> tuple[Array]:
        widths = [(0, 0)] * data.ndim
        chosen = range(data.ndim) if axes is None else np.asarray(axes).reshape(-1).tolist()
        for place, axis in enumerate(chosen):
            widths[axis] = (int(pads[place]), int(pads[place + len(chosen)]))
        crop = tuple(
            slice(max(0, -low), size - max(0, -high))
            for (low, high), size in zip(widths, data.shape, strict=True)
        )
        grown = [(max(0, low), max(0, high)) for low, high in widths]
        if mode == "constant":
            fill = 0 if value is None or not np.size(value) else np.asarray(value).reshape(-1)[0]
            return (np.pad(data[crop], grown, constant_values=fill),)
        return (np.pad(data[crop], grown, mode=mode),)  # type: ignore[call-overload]


class QuantizeLinear(OpRun):
    """The evaluator wraps around at 2**31: 3e9 becomes -128 instead of 127."""

    def _run(
        self,
        x: Array,
        scale: Array,
        zero: Array | None = None,
        axis: int = 1,
        saturate: int = 1,
        block_size: int = 0,
        output_dtype: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        dtype = (
            zero.dtype
            if zero is not None
            else np.dtype(
                onnx.helper.tensor_dtype_to_np_dtype(output_dtype or onnx.TensorProto.UINT8)
            )
        )
        ratio = _wide(x) / _spread(scale, x.shape, axis, block_size)
        offset = 0 if zero is None else _spread(zero, x.shape, axis, block_size).astype(ratio.dtype)
        limits = _integer_limits(dtype)
        if limits is not None:
            return (_saturated(np.rint(ratio) + offset, *limits).astype(dtype),)
        if saturate:
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
            wide = wide - _spread(zero, x.shape, axis, block_size).astype(np.float64)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(output_dtype) if output_dtype else scale.dtype
        return (
            (wide * _spread(scale, x.shape, axis, block_size).astype(np.float64)).astype(dtype),
        )


class DynamicQuantizeLinear(OpRun):
    """The evaluator computes the scale in float32."""

    def _run(self, x: Array, **_: Any) -> tuple[Array, Array, Array]:
        return quantized_dynamically(x)


def quantized_dynamically(x: Array) -> tuple[Array, Array, Array]:
    """The tensor as uint8, with the scale and zero point that hold its range."""
    low, high = x.min(initial=0), x.max(initial=0)
    scale = np.asarray((high - low) / x.dtype.type(255) if high > low else 1, x.dtype)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    return (
        _saturated(np.rint(x / scale) + zero, 0, 255).astype(np.uint8),
        scale,
        np.asarray(zero, np.uint8),
    )


class QLinearConv(OpRun):
    """The evaluator adds the zero point before it rounds, which turns ties around, and takes only images for per-channel scales."""

    def _run(self, *args: Any, **attributes: Any) -> tuple[Array]:
        return (quantized_convolution(*args, **attributes),)


def quantized_convolution(
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array,
    y_scale: Array,
    y_zero: Array,
    bias: Array | None = None,
    **attributes: Any,
) -> Array:
    """Integers in, integers out; the bias has the scale of the sums."""
    wide_w = w.astype(np.float64) - _filters(w_zero, w.ndim)
    sums = windows.convolve(
        x.astype(np.float64) - x_zero.astype(np.float64),
        wide_w,
        None if bias is None else bias.astype(np.float64),
        **attributes,
    )
    factor = x_scale.astype(np.float64) * w_scale / y_scale
    scaled = sums * (_channels(factor, w.ndim) if np.size(factor) > 1 else factor.reshape(()))
    limits = np.iinfo(y_zero.dtype)
    return _saturated(np.rint(scaled) + y_zero.astype(np.float64), limits.min, limits.max).astype(
        y_zero.dtype
    )


def _filters(zero: Array, rank: int) -> Array:
    return (
        zero.astype(np.float64).reshape(-1, *(1,) * (rank - 1))
        if zero.size > 1
        else zero.astype(np.float64).reshape(())
    )


def _spread(values: Array, shape: Sequence[int], axis: int, block: int) -> Array:
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
    bits = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}
    return bits.get(dtype.name)


def _saturated(values: Array, low: int, high: int) -> Array:
    return np.asarray(np.clip(np.nan_to_num(values, nan=0.0), low, high))


_FLATTENED = {
    "Softmax": _flattened("Softmax", _softmax),
    "LogSoftmax": _flattened("LogSoftmax", _log_softmax),
    "Hardmax": _flattened("Hardmax", _hardmax),
}
_BEFORE: dict[str, tuple[int, type[OpRun]]] = {
    name: (13, kind) for name, kind in _FLATTENED.items()
} | {"Resize": (11, windows.ScaledResize)}
"""Operators whose meaning changed: the opset that changed it, and what they meant before."""
_SINCE = {"Pad": 11, "Upsample": 9}
_KINDS: tuple[type[OpRun], ...] = (
    Erf,
    GatherElements,
    LeakyRelu,
    Gelu,
    HardSwish,
    LogSoftmax,
    LayerNormalization,
    InstanceNormalization,
    GroupNormalization,
    LRN,
    LpNormalization,
    MaxUnpool,
    Optional,
    Pad,
    QuantizeLinear,
    DequantizeLinear,
    DynamicQuantizeLinear,
    QLinearConv,
    SoftmaxCrossEntropyLoss,
    *windows.OPERATORS,
    recurrent.RNN,
    recurrent.GRU,
    recurrent.LSTM,
    subgraphs.Loop,
    subgraphs.Scan,
    subgraphs.SequenceMap,
)
_OPERATORS: dict[str, type[OpRun]] = {kind.__name__: kind for kind in _KINDS} | {
    "Upsample": windows.ScaledResize
}
