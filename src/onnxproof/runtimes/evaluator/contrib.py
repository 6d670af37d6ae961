"""Operators of ONNX Runtime's own domain (`com.microsoft`), which its optimizer and its quantizer write into files.

Each was compared with ONNX Runtime's kernel on random inputs. What is not here is refused, and nothing is guessed: an
option that no file was seen with raises.
"""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import contrib_quantized, quantized
from onnxproof.runtimes.evaluator.activations import gelu, sigmoid
from onnxproof.runtimes.evaluator.contrib_quantized import DOMAIN, Contrib, add_bias
from onnxproof.runtimes.evaluator.normalization import normalize
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


def find(op_type: str) -> type[OpRun] | None:
    """Our implementation, or None."""
    return OPERATORS.get(op_type)


class FusedMatMul(Contrib):
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
        product = _transpose(a, transBatchA, transA) @ _transpose(b, transBatchB, transB)
        return (np.asarray(alpha * product).astype(a.dtype),)


def _transpose(x: Array, batch: int, last: int) -> Array:
    """`batch` moves the first axis behind the batch axes; `last` swaps the two of the matrix."""
    if batch:
        x = np.moveaxis(x, 0, -2)
    if last and x.ndim > 1:
        x = x.swapaxes(-1, -2)
    return x


class SkipLayerNormalization(Contrib):
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
        total = add_bias(widen(x) + skip, bias)
        y, mean, inverse = normalize(total, (x.ndim - 1,), epsilon)
        y = add_bias(y * gamma, beta)
        outputs = (y.astype(x.dtype), mean, inverse, total.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


class SkipSimplifiedLayerNormalization(Contrib):
    """A sum over its root mean square; the sum is an output too."""

    def _run(
        self,
        x: Array,
        skip: Array,
        gamma: Array,
        bias: Array | None = None,
        epsilon: float = 1e-12,
        **_: Any,
    ) -> tuple[Array, ...]:
        total = add_bias(widen(x) + skip, bias)
        inverse = 1.0 / np.sqrt(np.square(total).mean(axis=-1, keepdims=True) + epsilon)
        y = total * inverse * gamma
        mean = np.zeros_like(inverse)  # the kernel leaves this output alone
        outputs = (y.astype(x.dtype), mean, inverse, total.astype(x.dtype))
        return outputs[: len(self.onnx_node.output)]


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
        return ((x * sigmoid(alpha * x)).astype(x.dtype),)


OPERATORS: dict[str, type[OpRun]] = {
    **contrib_quantized.OPERATORS,
    "QuantizeLinear": quantized.QuantizeLinear,
    "DequantizeLinear": quantized.DequantizeLinear,
    "FusedMatMul": FusedMatMul,
    "SkipLayerNormalization": SkipLayerNormalization,
    "SkipSimplifiedLayerNormalization": SkipSimplifiedLayerNormalization,
    "Gelu": BiasGelu,
    "BiasGelu": BiasGelu,
    "FastGelu": FastGelu,
    "QuickGelu": QuickGelu,
}
__all__ = ["DOMAIN", "OPERATORS", "find"]
