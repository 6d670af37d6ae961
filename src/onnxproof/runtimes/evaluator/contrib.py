"""Operators of ONNX Runtime's own domain (`com.microsoft`), which its optimizer and its quantizer write into files.

Each was compared with ONNX Runtime's kernel on random inputs. What is not here is refused, and nothing is guessed: an
option that no file was seen with raises. Integers are multiplied in float64, which holds every product of theirs exactly.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import operators, windows

Array = np.ndarray[Any, Any]
DOMAIN = "com.microsoft"


def find(op_type: str) -> type[OpRun] | None:
    """Our implementation, or None."""
    return _KINDS.get(op_type)


class _Contrib(OpRun):
    """No schema of the standard, so defaults are those of the signatures here."""

    op_schema = None
    op_domain = DOMAIN


def _real(x: Array, scale: Array | None, zero: Array | None, axis: int = -1) -> Array:
    """What integers stand for; several scales or zero points go along one axis."""
    wide = x.astype(np.float64)
    if zero is not None:
        wide = wide - operators._spread(zero, x.shape, axis, 0).astype(np.float64)
    return (
        wide
        if scale is None
        else wide * operators._spread(scale, x.shape, axis, 0).astype(np.float64)
    )


def _rounded(y: Array, scale: Array, zero: Array | None) -> Array:
    """The integers of an output; without a zero point it is a uint8 around 0."""
    dtype = np.dtype(np.uint8) if zero is None else zero.dtype
    limits = np.iinfo(dtype)
    offset = 0.0 if zero is None else zero.astype(np.float64).reshape(())
    return operators._saturated(
        np.rint(y / scale.astype(np.float64).reshape(())) + offset, limits.min, limits.max
    ).astype(dtype)


class DynamicQuantizeMatMul(_Contrib):
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
        integers, scale, zero = operators.quantized_dynamically(a)
        y = _real(integers, scale, zero) @ _real(b, b_scale, b_zero)
        return ((y if bias is None else y + bias).astype(a.dtype),)


class MatMulIntegerToFloat(_Contrib):
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
        y = _real(a, a_scale, a_zero, axis=a.ndim - 2) @ _real(b, b_scale, b_zero)
        return ((y if bias is None else y + bias).astype(a_scale.dtype),)


class QGemm(_Contrib):
    """Gemm of integers; the bias has the scale of the product, and without an output scale the answer is a float."""

    def _run(
        self,
        a: Array,
        a_scale: Array,
        a_zero: Array,
        b: Array,
        b_scale: Array,
        b_zero: Array,
        c: Array | None = None,
        y_scale: Array | None = None,
        y_zero: Array | None = None,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        a, b = a.T if transA else a, b.T if transB else b
        product = _real(a, None, a_zero) @ _real(b, None, b_zero)
        scale = alpha * a_scale.astype(np.float64) * b_scale.astype(np.float64)
        y = (product if c is None else product + c) * scale
        return (y.astype(a_scale.dtype) if y_scale is None else _rounded(y, y_scale, y_zero),)


class QLinearConcat(_Contrib):
    """Each part is rounded anew to the scale of the whole."""

    def _run(
        self, y_scale: Array, y_zero: Array, *parts: Array, axis: int = 0, **_: Any
    ) -> tuple[Array]:
        triples = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        return (
            _rounded(
                np.concatenate([_real(*triple) for triple in triples], axis=axis), y_scale, y_zero
            ),
        )


class QLinearConv(_Contrib):
    """The standard's, or with the channels last."""

    def _run(self, *args: Any, channels_last: int = 0, **attributes: Any) -> tuple[Array]:
        convolve = operators.quantized_convolution
        if not channels_last:
            return (convolve(*args, **attributes),)
        return (np.moveaxis(convolve(np.moveaxis(args[0], -1, 1), *args[1:], **attributes), 1, -1),)


def _binary(function: Callable[[Array, Array], Array]) -> type[OpRun]:
    class QLinearBinary(_Contrib):
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
            return (
                _rounded(
                    function(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero)), y_scale, y_zero
                ),
            )

    return QLinearBinary


def _unary(function: Callable[..., Array]) -> type[OpRun]:
    class QLinearUnary(_Contrib):
        def _run(
            self,
            x: Array,
            x_scale: Array,
            x_zero: Array | None,
            y_scale: Array,
            y_zero: Array | None = None,
            **attributes: Any,
        ) -> tuple[Array]:
            return (_rounded(function(_real(x, x_scale, x_zero), **attributes), y_scale, y_zero),)

    return QLinearUnary


def _sigmoid(x: Array, **_: Any) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _softmax(x: Array, *, axis: int = -1, opset: int = 13, **_: Any) -> Array:
    if opset < 13:  # all axes from `axis` on are one
        return operators._softmax(x.reshape(int(np.prod(x.shape[:axis])), -1), -1).reshape(x.shape)
    return operators._softmax(x, axis)


def _leaky(x: Array, *, alpha: float = 0.01, **_: Any) -> Array:
    return np.where(x > 0, x, alpha * x)


def _global_pool(x: Array, *, channels_last: int = 0, **_: Any) -> Array:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    return np.asarray(x.mean(axis=axes, keepdims=True))


class QLinearAveragePool(windows.AveragePool):
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
        real = _real(x, x_scale, x_zero)
        (y,) = super()._run(np.moveaxis(real, -1, 1) if channels_last else real, **attributes)
        return (_rounded(np.moveaxis(y, 1, -1) if channels_last else y, y_scale, y_zero),)


class FusedMatMul(_Contrib):
    """A product of transposed matrices, times a number."""

    def _run(
        self,
        a: Array,
        b: Array,
        alpha: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        transBatchA: int = 0,
        transBatchB: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        return (
            np.asarray(
                alpha * (_transposed(a, transBatchA, transA) @ _transposed(b, transBatchB, transB))
            ).astype(a.dtype),
        )


def _transposed(x: Array, batch: int, last: int) -> Array:
    """`batch` moves the first axis behind the batch axes; `last` swaps the two of the matrix."""
    x = np.moveaxis(x, 0, -2) if batch else x
    return x.swapaxes(-1, -2) if last and x.ndim > 1 else x


class SkipLayerNormalization(_Contrib):
    """LayerNormalization of a sum, which is an output too."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        beta: Array | None = None,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **_: Any,
    ) -> tuple[Array, ...]:
        total = operators._wide(x) + skip
        total = total if bias is None else total + bias
        y, mean, inverse = operators._normalized(total, (x.ndim - 1,), epsilon)
        y = y * gamma if beta is None else y * gamma + beta
        return (y.astype(x.dtype), mean, inverse, total.astype(x.dtype))[
            : len(self.onnx_node.output)
        ]


class _GeluOf(_Contrib):
    """gelu(x + bias), exact or by tanh."""

    approximate = False

    def _run(self, x: Array, bias: Array | None = None, **_: Any) -> tuple[Array]:
        wide = operators._wide(x)
        return (
            operators.gelu(
                wide if bias is None else wide + bias, approximate=self.approximate
            ).astype(x.dtype),
        )


class FastGelu(_GeluOf):
    """The approximation by tanh."""

    approximate = True


class QuickGelu(_Contrib):
    """x times the sigmoid of alpha x."""

    def _run(self, x: Array, alpha: float = 1.702, **_: Any) -> tuple[Array]:
        return ((x * _sigmoid(alpha * x)).astype(x.dtype),)


class MatMulNBits(_Contrib):
    """Weights of 4 or 8 bits in blocks along the summed axis, low nibble first; without zero points the middle is the zero."""

    def _run(
        self,
        a: Array,
        b: Array,
        scales: Array,
        zeros: Array | None = None,
        groups: Array | None = None,
        bias: Array | None = None,
        *,
        K: int,
        N: int,
        bits: int = 4,
        block_size: int = 128,
        **_: Any,
    ) -> tuple[Array]:
        if bits not in (4, 8) or groups is not None:
            raise NotImplementedError("MatMulNBits with other than 4 or 8 bits, or with g_idx")
        blocks = -(-K // block_size)
        weights = (
            _unpacked(b.reshape(N, -1), bits)[:, : blocks * block_size]
            .reshape(N, blocks, block_size)
            .astype(np.float64)
        )
        weights = (weights - self._zeros(zeros, N, blocks, bits)) * scales.reshape(
            N, blocks, 1
        ).astype(np.float64)
        y = a @ weights.reshape(N, -1)[:, :K].T
        return ((y if bias is None else y + bias).astype(a.dtype),)

    def _zeros(self, zeros: Array | None, rows: int, blocks: int, bits: int) -> Array:
        if zeros is None:
            return np.full((1, 1, 1), 2.0 ** (bits - 1))
        whole = (
            _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
            if zeros.dtype == np.uint8
            else zeros
        )
        return whole.reshape(rows, blocks, 1).astype(np.float64)


def _unpacked(packed: Array, bits: int) -> Array:
    """The numbers of each row, two in a byte where they have four bits."""
    if bits == 8:
        return packed
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


class QAttention(_Contrib):
    """Self-attention whose projection is a product of integers; lengths or a mask of the keys hide places."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array,
        x_scale: Array,
        w_scale: Array,
        mask: Array | None = None,
        x_zero: Array | None = None,
        w_zero: Array | None = None,
        past: Array | None = None,
        *,
        num_heads: int,
        unidirectional: int = 0,
        do_rotary: int = 0,
        mask_filter_value: float = -10000.0,
        scale: float = 0.0,
        **_: Any,
    ) -> tuple[Array]:
        if (
            past is not None
            or do_rotary
            or (mask is not None and mask.shape not in ((x.shape[0],), x.shape[:2]))
        ):
            raise NotImplementedError(
                "QAttention with a past, with rotary positions, or with a mask of another kind"
            )
        batch, length = x.shape[:2]
        projected = _real(x, x_scale, x_zero) @ _real(w, w_scale, w_zero) + bias
        q, k, v = projected.reshape(batch, length, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)
        scores = q @ k.swapaxes(-1, -2) * (scale or 1.0 / np.sqrt(q.shape[-1]))
        if unidirectional:
            scores = scores + np.where(np.tri(length, dtype=bool), 0.0, mask_filter_value)
        if mask is not None:
            open_places = np.arange(length) < mask[:, None] if mask.ndim == 1 else mask != 0
            scores = scores + np.where(open_places, 0.0, mask_filter_value)[:, None, None, :]
        y = operators._softmax(scores, -1) @ v
        return (y.transpose(0, 2, 1, 3).reshape(batch, length, -1).astype(x_scale.dtype),)


_KINDS: dict[str, type[OpRun]] = {
    "DynamicQuantizeMatMul": DynamicQuantizeMatMul,
    "MatMulIntegerToFloat": MatMulIntegerToFloat,
    "QGemm": QGemm,
    "QAttention": QAttention,
    "MatMulNBits": MatMulNBits,
    "QLinearConcat": QLinearConcat,
    "QLinearConv": QLinearConv,
    "QLinearAdd": _binary(np.add),
    "QLinearMul": _binary(np.multiply),
    "QLinearSigmoid": _unary(_sigmoid),
    "QLinearLeakyRelu": _unary(_leaky),
    "QLinearSoftmax": _unary(_softmax),
    "QLinearGlobalAveragePool": _unary(_global_pool),
    "QLinearAveragePool": QLinearAveragePool,
    "QuantizeLinear": operators.QuantizeLinear,
    "DequantizeLinear": operators.DequantizeLinear,
    "FusedMatMul": FusedMatMul,
    "SkipLayerNormalization": SkipLayerNormalization,
    "Gelu": _GeluOf,
    "BiasGelu": _GeluOf,
    "FastGelu": FastGelu,
    "QuickGelu": QuickGelu,
}
