"""Activations that are operators of their own, and those that other operators take by name."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.activations import gelu, sigmoid
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias
from onnxproof.runtimes.evaluator.normalization import softmax
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


def activate(name: str, x: Array, parameters: Sequence[float] = ()) -> Array:
    """An activation by its name in a fused node, with its parameters in the order of the standard's attributes."""
    if not name:
        return x
    if name not in _BY_NAME:
        raise NotImplementedError(f"the fused activation `{name}`")
    return _BY_NAME[name](x, *parameters)


def silu(x: Array) -> Array:
    """x times its sigmoid."""
    return x * sigmoid(x)


def _leaky_relu(x: Array, alpha: float = 0.01) -> Array:
    return np.where(x > 0, x, alpha * x)


def _clip(x: Array, low: float = -np.inf, high: float = np.inf) -> Array:
    return np.clip(x, low, high)


def _hard_sigmoid(x: Array, alpha: float = 0.2, beta: float = 0.5) -> Array:
    return np.clip(alpha * x + beta, 0.0, 1.0)


_BY_NAME: dict[str, Callable[..., Array]] = {
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky_relu,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
}


class BiasGelu(Contrib):
    """gelu(x + bias), exact or by tanh."""

    approximate = False

    def _run(
        self,
        x: Array,
        bias: Array | None = None,
        **_: Any,
    ) -> tuple[Array]:
        y = gelu(add_bias(widen(x), bias), approximate=self.approximate)
        return (y.astype(x.dtype),)


class FastGelu(BiasGelu):
    """The approximation by tanh."""

    approximate = True


class QuickGelu(Contrib):
    """x times the sigmoid of alpha x."""

    def _run(
        self,
        x: Array,
        alpha: float = 1.702,
        **_: Any,
    ) -> tuple[Array]:
        wide = widen(x)
        return ((wide * sigmoid(alpha * wide)).astype(x.dtype),)


class BiasSplitGelu(Contrib):
    """The left half of x + bias times the gelu of its right half."""

    def _run(self, x: Array, bias: Array, **_: Any) -> tuple[Array]:
        left, right = np.split(add_bias(widen(x), bias), 2, axis=-1)
        return ((left * gelu(right, approximate=False)).astype(x.dtype),)


class BiasAdd(Contrib):
    """A tensor, its bias, and a residual."""

    def _run(self, x: Array, bias: Array, skip: Array, **_: Any) -> tuple[Array]:
        return ((widen(x) + bias + skip).astype(x.dtype),)


class BiasSoftmax(Contrib):
    """Softmax of a sum over all axes from `axis` on; the bias lacks axes at its front or before `axis`."""

    def _run(
        self,
        x: Array,
        bias: Array,
        axis: int = 1,
        is_inner_broadcast: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        first = axis % x.ndim
        wide = widen(x)
        if is_inner_broadcast and bias.ndim < x.ndim:
            missing = x.ndim - bias.ndim
            outer = bias.shape[: first - missing]
            bias = bias.reshape(*outer, *(1,) * missing, *x.shape[first:])
        total = (wide + bias).reshape(*x.shape[:first], -1)
        return (softmax(total, -1).reshape(x.shape).astype(x.dtype),)


OPERATORS: dict[str, type[OpRun]] = {
    "BiasAdd": BiasAdd,
    "BiasGelu": BiasGelu,
    "BiasSoftmax": BiasSoftmax,
    "BiasSplitGelu": BiasSplitGelu,
    "FastGelu": FastGelu,
    "Gelu": BiasGelu,
    "QuickGelu": QuickGelu,
}
