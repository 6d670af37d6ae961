"""Matrix products with a transposition, a scale, a bias or an activation inside."""

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.activations import gelu
from onnxproof.runtimes.evaluator.contrib.activations import activate
from onnxproof.runtimes.evaluator.contrib.operator import Contrib, add_bias
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


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
        left = _transpose(widen(a), transBatchA, transA)
        right = _transpose(widen(b), transBatchB, transB)
        return (np.asarray(alpha * (left @ right)).astype(a.dtype),)


def _transpose(x: Array, batch: int, last: int) -> Array:
    """`batch` moves the first axis behind the batch axes; `last` swaps the two of the matrix."""
    if batch:
        x = np.moveaxis(x, 0, -2)
    if last and x.ndim > 1:
        x = x.swapaxes(-1, -2)
    return x


class FusedGemm(Contrib):
    """Gemm and an activation whose parameters are attributes of their own."""

    def _run(
        self,
        a: Array,
        b: Array,
        c: Array | None = None,
        alpha: float = 1.0,
        beta: float = 1.0,
        transA: int = 0,
        transB: int = 0,
        activation: str = "",
        **parameters: Any,
    ) -> tuple[Array]:
        product = _transpose(widen(a), 0, transA) @ _transpose(widen(b), 0, transB)
        y = alpha * product
        if c is not None:
            y = y + beta * widen(c)
        numbers = (parameters.get("activation_alpha"), parameters.get("activation_beta"))
        given = [number for number in numbers if number is not None]
        return (activate(activation, y, given).astype(a.dtype),)


class GemmFastGelu(Contrib):
    """A product, a bias, and gelu by tanh."""

    def _run(self, x: Array, w: Array, bias: Array | None = None, **_: Any) -> tuple[Array]:
        y = add_bias(widen(x) @ widen(w), bias)
        return (gelu(y, approximate=True).astype(x.dtype),)


OPERATORS: dict[str, type[OpRun]] = {
    "FusedGemm": FusedGemm,
    "FusedMatMul": FusedMatMul,
    "GemmFastGelu": GemmFastGelu,
    "TransposeMatMul": FusedMatMul,
}
