"""Operators that onnx's own evaluator lacks, gets wrong, or computes in float32 whatever it is given.

Measured against PyTorch in float64 with onnx 1.23; each docstring says what was wrong.
They are pure numpy, and they compute in the dtype that they are given, but never in less than float32.
"""

from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_max_unpool import MaxUnpool as _StandardMaxUnpool
from onnx.reference.ops.op_negative_log_likelihood_loss import (
    _compute_negative_log_likelihood_loss as _likelihood_loss,
)

from onnxproof.runtimes.evaluator import (
    activations,
    convolution,
    normalization,
    pooling,
    quantized,
    recurrent,
    resizing,
    sampling,
    subgraphs,
)
from onnxproof.runtimes.evaluator.contrib import normalization as fused_norms
from onnxproof.runtimes.evaluator.normalization import log_softmax

Array = np.ndarray[Any, Any]


def find(op_type: str, opset: int) -> type[OpRun] | None:
    """Our implementation of an operator of the standard's own domain, or None where the evaluator's is right."""
    if op_type in _BEFORE:
        changed, earlier = _BEFORE[op_type]
        if opset < changed:
            return earlier
    if opset < _SINCE.get(op_type, 1):
        return None
    return _OPERATORS.get(op_type)


class GatherElements(OpRun):
    """The evaluator goes through `np.choose`, which takes 64 rows at the most."""

    def _run(
        self,
        data: Array,
        indices: Array,
        axis: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        positive = np.where(indices < 0, indices + data.shape[axis], indices)
        return (np.take_along_axis(data, positive, axis=axis),)


class BitCast(OpRun):
    """The bits of a float32 are not those of the float64 that stands for it: it is narrowed to the width of the target first."""

    def _run(self, x: Array, to: int = 0, **_: Any) -> tuple[Array]:
        target = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(to))
        if x.dtype == np.float64 and target.itemsize in (2, 4):
            x = x.astype(np.dtype(f"f{target.itemsize}"))
        return (np.atleast_1d(np.ascontiguousarray(x)).view(target).reshape(x.shape),)


class Scatter(OpRun):
    """ScatterElements before opset 11, which the evaluator lacks."""

    op_schema = onnx.defs.get_schema("Scatter", 10)

    def _run(
        self, data: Array, indices: Array, updates: Array, axis: int = 0, **_: Any
    ) -> tuple[Array]:
        out = data.copy()
        positive = np.where(indices < 0, indices + data.shape[axis], indices)
        np.put_along_axis(out, positive, updates, axis)
        return (out,)


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
        likelihood = log_softmax(x, 1).astype(x.dtype)
        loss = _likelihood_loss(
            likelihood,
            target,
            weight=weight,
            reduction=reduction,
            ignore_index=ignore_index,
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
        added = [(max(0, low), max(0, high)) for low, high in widths]
        if mode != "constant":
            return (np.pad(data[crop], added, mode=mode),)  # type: ignore[call-overload]
        fill = 0
        if value is not None and np.size(value):
            fill = np.asarray(value).reshape(-1)[0]
        return (np.pad(data[crop], added, constant_values=fill),)


_BEFORE: dict[str, tuple[int, type[OpRun]]] = {
    **{name: (13, kind) for name, kind in normalization.SOFTMAX_OF_MATRIX.items()},
    "Resize": (11, resizing.ScaledResize),
    "Scan": (9, subgraphs.BatchScan),
}
"""Operators whose meaning changed: the opset that changed it, and what they meant before."""
_SINCE = {"Pad": 11, "Upsample": 9}
_KINDS: tuple[type[OpRun], ...] = (
    BitCast,
    GatherElements,
    MaxUnpool,
    Optional,
    Pad,
    Scatter,
    SoftmaxCrossEntropyLoss,
    activations.Erf,
    activations.Gelu,
    activations.HardSwish,
    activations.LeakyRelu,
    convolution.Conv,
    convolution.ConvTranspose,
    normalization.GroupNormalization,
    normalization.InstanceNormalization,
    normalization.LRN,
    normalization.LayerNormalization,
    normalization.LogSoftmax,
    normalization.LpNormalization,
    pooling.AveragePool,
    pooling.LpPool,
    pooling.MaxPool,
    quantized.DequantizeLinear,
    quantized.DynamicQuantizeLinear,
    quantized.QLinearConv,
    quantized.QuantizeLinear,
    recurrent.GRU,
    recurrent.LSTM,
    recurrent.RNN,
    resizing.Resize,
    sampling.AffineGrid,
    sampling.GridSample,
    subgraphs.Loop,
    subgraphs.Scan,
    subgraphs.SequenceMap,
)
_OPERATORS: dict[str, type[OpRun]] = {kind.__name__: kind for kind in _KINDS}
_OPERATORS["Upsample"] = resizing.ScaledResize
_OPERATORS["SimplifiedLayerNormalization"] = fused_norms.SimplifiedLayerNormalization
