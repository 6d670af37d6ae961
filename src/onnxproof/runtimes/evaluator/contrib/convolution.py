"""Convolutions and pools with an activation inside, with the channels last, or in ONNX Runtime's blocks of channels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import pooling
from onnxproof.runtimes.evaluator.contrib.activations import activate
from onnxproof.runtimes.evaluator.contrib.operator import DOMAIN, Contrib
from onnxproof.runtimes.evaluator.convolution import convolve
from onnxproof.runtimes.evaluator.precision import widen

Array = np.ndarray[Any, Any]


class FusedConv(Contrib):
    """A convolution, a tensor that is added to it, and an activation."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        added: Array | None = None,
        activation: str = "",
        activation_params: Sequence[float] = (),
        **attributes: Any,
    ) -> tuple[Array]:
        y = convolve(widen(x), widen(w), bias, **attributes)
        if added is not None:
            y = y + added
        return (activate(activation, y, activation_params or ()).astype(x.dtype),)


class NhwcFusedConv(FusedConv):
    """The same with the channels last in every tensor but the weights."""

    def _run(  # type: ignore[override]
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        added: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        if added is not None:
            added = np.moveaxis(added, -1, 1)
        (y,) = super()._run(np.moveaxis(x, -1, 1), w, bias, added, **attributes)
        return (np.moveaxis(y, 1, -1),)


class NhwcMaxPool(pooling.MaxPool):
    """MaxPool with the channels last."""

    op_schema = None
    op_domain = DOMAIN

    def _run(self, x: Array, **attributes: Any) -> tuple[Array]:  # type: ignore[override]
        (y,) = super()._run(np.moveaxis(x, -1, 1), **attributes)
        return (np.moveaxis(y, 1, -1),)


OPERATORS: dict[str, type[OpRun]] = {
    "FusedConv": FusedConv,
    "NhwcConv": NhwcFusedConv,
    "NhwcFusedConv": NhwcFusedConv,
    "NhwcMaxPool": NhwcMaxPool,
}
