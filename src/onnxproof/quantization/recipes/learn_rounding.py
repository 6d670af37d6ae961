"""Learned rounding: a weight goes up or down by what its layer's output needs, not by what is nearer.

1. For each layer the inputs' second moments are gathered from the kept samples.
2. Columns are rounded one after the other, and the error of each is passed on to those not yet rounded (the objective of AdaRound, Nagel et
   al. 2020, solved the way of OBQ and GPTQ). It needs the graph alone.
3. Layers are kept one by one, only where the outputs gain.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.layer_matrices import input_rows, weight_matrix
from onnxproof.quantization.trials import Applied, QuantizationTrials
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
ABOUT = "weights rounded by what the outputs need"
_GAIN_DB = 0.02
"""A layer that gains less keeps its rounding (not measured)."""
_DAMP = 0.01
"""Of the mean moment, added to the diagonal so that it can be inverted: GPTQ's own value."""
_WIDEST = 4096
"""Columns beyond which a layer is left out: the moments are a square matrix of that size."""
_ROWS = 1 << 14
"""Rows of one batch that enter the moments (not measured)."""
_LIMITS = {"int8": (-127, 127), "uint8": (0, 255)}


def apply(trials: QuantizationTrials) -> Applied | str:
    """Round layer after layer."""
    best, score, kept = trials.quantized, trials.score, 0
    float_nodes = {node.name: node for node in trials.model.graph.node}
    names = [
        node.name
        for node in trials.quantized.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.name in float_nodes
    ]
    for name in names:
        if trials.deadline_passed:
            break
        trials.report_progress(f"rounding of {name}")
        trial = _round_layer(trials, best, float_nodes[name])
        if trial is None:
            continue
        trial_score = trials.score_model(trial)
        if trial_score.better(score, _GAIN_DB):  # step 3
            best, score, kept = trial, trial_score, kept + 1
    if not kept:
        return "no layer's answers gain from another rounding"
    return Applied(quantized=best, what=f"{kept} of {len(names)} layers rounded anew")


def _round_layer(
    trials: QuantizationTrials, quantized: onnx.ModelProto, float_node: onnx.NodeProto
) -> onnx.ModelProto | None:
    """A copy with the weight of one layer rounded anew; None where the layer has no such weight, or its input no such rows."""
    changed = copy_model(quantized)
    index, float_index = Index(changed), Index(trials.model)
    node = next(node for node in changed.graph.node if node.name == float_node.name)
    dequantize = index.producers.get(node.input[1])
    weight = float_index.weight_of(float_node)
    if dequantize is None or dequantize.op_type != "DequantizeLinear":
        return None
    if weight is None or dequantize.input[0] not in index.weights:
        return None
    moments = _moments(trials, changed, node)  # step 1
    if moments is None:
        return None
    grid = _IntegerGrid.read(index, dequantize)
    rows, restore_shape = weight_matrix(node, float_index.array(weight).astype(np.float64))
    if grid is None or rows.shape[1] != moments.shape[-1]:
        return None
    integers = grid.round(rows, moments)  # step 2
    index.store(dequantize.input[0], restore_shape(integers).astype(grid.dtype))
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntegerGrid:
    """The integers that a weight is kept in: their type, scale (one, or one for each output) and zero point."""

    dtype: np.dtype[Any]
    scale: Array
    zero: float

    @classmethod
    def read(cls, index: Index, dequantize: onnx.NodeProto) -> "_IntegerGrid | None":
        """The grid of a weight's DequantizeLinear; None where its type is another one."""
        dtype = index.array(dequantize.input[0]).dtype
        if str(dtype) not in _LIMITS:
            return None
        zero = 0.0
        if len(dequantize.input) > 2:
            zero = index.array(dequantize.input[2]).astype(np.float64).reshape(-1)[0]
        scale = index.array(dequantize.input[1]).astype(np.float64)
        return cls(dtype=dtype, scale=scale, zero=zero)

    def round(self, rows: Array, moments: Array) -> Array:
        """Float weights as integers of this grid."""
        if self.scale.size > 1:
            step = self.scale.reshape(-1, 1)
        else:
            step = np.full((rows.shape[0], 1), float(self.scale.reshape(-1)[0]))
        low, high = _LIMITS[str(self.dtype)]
        return _solve(rows / step, moments, low - self.zero, high - self.zero) + self.zero


def _solve(weights: Array, moments: Array, low: float, high: float) -> Array:
    """Round columns in order, each with the errors of those before it."""
    w = weights.copy()
    size = w.shape[1]
    h = moments + np.eye(size) * _DAMP * max(float(np.trace(moments)) / size, 1e-12)
    inverse = np.linalg.cholesky(np.linalg.inv(h)).T
    for column in range(size):
        rounded = np.clip(np.rint(w[:, column]), low, high)
        error = (w[:, column] - rounded) / inverse[column, column]
        w[:, column:] -= np.outer(error, inverse[column, column:])
        w[:, column] = rounded
    return w


def _moments(
    trials: QuantizationTrials, model: onnx.ModelProto, node: onnx.NodeProto
) -> Array | None:
    """The second moments of what the layer reads, in the quantized graph."""
    watched = copy_model(model)
    add_outputs(watched, [node.input[0]])
    session = ort.open_model(watched, "disabled", outputs=[node.input[0]])
    total: Array | None = None
    for _, batch in trials.samples:
        array = session.run(batch)[0]
        assert array is not None
        rows = input_rows(node, array.astype(np.float64), model)
        if rows is None or rows.shape[1] > _WIDEST:
            return None
        rows = rows[:: max(1, len(rows) // _ROWS)]
        products = rows.T @ rows
        total = products if total is None else products + total
    return total
