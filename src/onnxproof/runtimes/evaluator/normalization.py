"""Operators that divide by a sum: softmax and its kin, and the normalizations."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.convolution import by_channel
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class LogSoftmax(OpRun):
    """The evaluator takes the logarithm of the softmax: minus infinity from a distance of 745 on, and errors before."""

    def _run(self, x: Array, axis: int = -1, **_: Any) -> tuple[Array]:
        return (log_softmax(x, axis).astype(x.dtype),)


def softmax(x: Array, axis: int) -> Array:
    """Softmax along one axis."""
    power = np.exp(_subtract_maximum(x, axis))
    return np.asarray(power / power.sum(axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int) -> Array:
    """Its logarithm, without computing the softmax."""
    shifted = _subtract_maximum(x, axis)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True)))


def _hardmax(x: Array, axis: int) -> Array:
    return np.asarray(np.arange(x.shape[axis]) == x.argmax(axis)[..., None])


def _subtract_maximum(x: Array, axis: int) -> Array:
    wide = widen(x)
    if not x.size:
        return wide
    return np.asarray(wide - wide.max(axis=axis, keepdims=True, initial=-np.inf))


def _of_matrix(name: str, function: Callable[[Array, int], Array]) -> type[OpRun]:
    """Before opset 13 the input was seen as a matrix: all axes from `axis` on were one. The evaluator uses the one axis."""

    class OfMatrix(OpRun):
        op_schema = onnx.defs.get_schema(name, 11)

        def _run(self, x: Array, axis: int = 1, **_: Any) -> tuple[Array]:
            first = axis + x.ndim if axis < 0 else axis
            rows = math.prod(x.shape[:first])
            columns = -1 if x.size else 0
            y = function(x.reshape(rows, columns), -1)
            return (y.reshape(x.shape).astype(x.dtype),)

    return OfMatrix


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
        y, mean, inverse = normalize(widen(x), axes, epsilon)
        y = y * scale
        if bias is not None:
            y = y + bias
        return y.astype(x.dtype), mean, inverse


class InstanceNormalization(OpRun):
    """The evaluator sums in half precision."""

    def _run(
        self,
        x: Array,
        scale: Array,
        bias: Array,
        epsilon: float = 1e-5,
        **_: Any,
    ) -> tuple[Array]:
        y = normalize(widen(x), tuple(range(2, x.ndim)), epsilon)[0]
        return ((y * by_channel(scale, x.ndim) + by_channel(bias, x.ndim)).astype(x.dtype),)


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
        grouped = widen(x).reshape(x.shape[0], num_groups, -1)
        y = normalize(grouped, (2,), epsilon)[0].reshape(x.shape)
        repeat = x.shape[1] // scale.size  # before opset 21 the scale had one number for each group
        scales = by_channel(np.repeat(scale, repeat), x.ndim)
        biases = by_channel(np.repeat(bias, repeat), x.ndim)
        return ((y * scales + biases).astype(x.dtype),)


def normalize(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """The values with mean 0 and variance 1 over these axes, their mean, and the inverse of their deviation."""
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    inverse = 1.0 / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + epsilon)
    return centred * inverse, mean, inverse


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
        before, after = (size - 1) // 2, size // 2
        total = np.zeros_like(widen(x))
        square = np.square(widen(x))
        for channel in range(x.shape[1]):
            neighbours = square[:, max(0, channel - before) : channel + after + 1]
            total[:, channel] = neighbours.sum(axis=1)
        return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)


class LpNormalization(OpRun):
    """The evaluator sums the values instead of their sizes where p is 1."""

    def _run(
        self,
        x: Array,
        axis: int = -1,
        p: int = 2,
        **_: Any,
    ) -> tuple[Array]:
        wide = widen(x)
        norm = (np.abs(wide) ** p).sum(axis=axis, keepdims=True) ** (1.0 / p)
        return (np.divide(wide, norm, out=np.zeros_like(wide), where=norm != 0).astype(x.dtype),)


SOFTMAX_OF_MATRIX: dict[str, type[OpRun]] = {
    "Softmax": _of_matrix("Softmax", softmax),
    "LogSoftmax": _of_matrix("LogSoftmax", log_softmax),
    "Hardmax": _of_matrix("Hardmax", _hardmax),
}
"""What these meant before opset 13."""
