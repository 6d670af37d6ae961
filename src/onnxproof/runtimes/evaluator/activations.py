"""Activations that onnx's evaluator rounds to float32."""

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]
_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_PI = math.sqrt(2.0 / math.pi)


def erf(x: Array) -> Array:
    """The error function, element by element: numpy has none."""
    wide = x.astype(np.float64)
    values = map(math.erf, wide.reshape(-1).tolist())
    return np.fromiter(values, np.float64, wide.size).reshape(x.shape)


class Erf(OpRun):
    """The evaluator rounds to float32 (3e-8)."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return (erf(x).astype(x.dtype),)


class Gelu(OpRun):
    """The evaluator expands it into a function with float32 constants (1e-8)."""

    def _run(
        self,
        x: Array,
        approximate: str = "none",
        **_: Any,
    ) -> tuple[Array]:
        return (gelu(widen(x), approximate=approximate == "tanh").astype(x.dtype),)


def sigmoid(x: Array, **_: Any) -> Array:
    """1 / (1 + exp(-x)) by way of tanh, which does not overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def gelu(x: Array, *, approximate: bool) -> Array:
    """x times the share of a normal distribution below it, or the usual approximation by tanh."""
    if approximate:
        inner = np.tanh(_SQRT_2_PI * (x + 0.044715 * x**3))
    else:
        inner = erf(x * _SQRT_HALF).astype(x.dtype)
    return np.asarray(0.5 * x * (1.0 + inner))


class LeakyRelu(OpRun):
    """The evaluator needs five times the memory of its input."""

    def _run(
        self,
        x: Array,
        alpha: float = 0.01,
        **_: Any,
    ) -> tuple[Array]:
        y = (x * alpha).astype(x.dtype, copy=False)
        np.copyto(y, x, where=x > 0)
        return (y,)


class HardSwish(OpRun):
    """The evaluator's function rounds a sixth to float32 (4e-9)."""

    def _run(self, x: Array, **_: Any) -> tuple[Array]:
        return ((x * np.clip(x / 6.0 + 0.5, 0.0, 1.0)).astype(x.dtype),)
