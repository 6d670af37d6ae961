"""Bias correction: rounding moves the mean of a layer's output, and the bias can take it back. Kept only where the outputs gain.

The mean of each channel, as the float graph makes it, against the mean as the quantized graph makes it, with everything before it quantized.
"""

from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.trials import Applied, QuantizationTrials
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
ABOUT = "means that rounding moved are put back by the biases"
_GAIN_DB = 0.05
"""A correction that gains less is not kept (not measured)."""
_ROUNDS = 2


def apply(trials: QuantizationTrials) -> Applied | str:
    """Correct all biases at once, twice, and keep what helps."""
    best, score, kept = trials.quantized, trials.score, 0
    for _round in range(_ROUNDS):
        if trials.deadline_passed:
            break
        trial = _correct_biases(trials, best)
        trial_score = trials.score_model(trial)
        if not trial_score.better(score, _GAIN_DB):
            break
        best, score, kept = trial, trial_score, kept + 1
    if not kept:
        return "corrected biases give no better answers"
    return Applied(quantized=best, what=f"corrected {kept} times")


def _correct_biases(trials: QuantizationTrials, quantized: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose biases take back what rounding moved the means by."""
    changed = copy_model(quantized)
    index = Index(changed)
    float_nodes = {node.name: node for node in trials.model.graph.node}
    layers = [
        node
        for node in changed.graph.node
        if node.op_type in ("Conv", "Gemm") and node.name in float_nodes and len(node.input) > 2
    ]
    float_means = _means(trials, trials.model, [float_nodes[node.name] for node in layers])
    quantized_means = _means(trials, changed, layers)
    for node in layers:
        _shift_bias(index, node, float_means[node.name] - quantized_means[node.name])
    return changed


def _shift_bias(index: Index, node: onnx.NodeProto, shift: Array) -> None:
    """Add to a layer's bias, be it kept in integers or in float; any other bias is left as it is."""
    bias = node.input[2]
    dequantize = index.producers.get(bias)
    if dequantize is not None and dequantize.op_type == "DequantizeLinear":
        integers = dequantize.input[0]
        if integers in index.weights:
            scale = index.array(dequantize.input[1]).astype(np.float64)
            shifted = index.array(integers).astype(np.float64) + np.rint(shift / scale)
            index.store(integers, np.clip(shifted, -(2**31), 2**31 - 1).astype(np.int32))
    elif bias in index.weights:
        index.store(bias, (index.array(bias) + shift).astype(np.float32))


def _means(
    trials: QuantizationTrials, model: onnx.ModelProto, nodes: list[onnx.NodeProto]
) -> dict[str, Array]:
    """The mean of each channel of what these nodes make, before any rounding."""
    watched = copy_model(model)
    names = [node.output[0] for node in nodes]
    add_outputs(watched, names)
    session = ort.open_model(watched, "disabled", outputs=names)
    sums: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for _, batch in trials.samples:
        for node, array in zip(nodes, session.run(batch), strict=True):
            assert array is not None
            axis = 1 if node.op_type == "Conv" else array.ndim - 1
            other_axes = tuple(other for other in range(array.ndim) if other != axis)
            sums[node.name] = sums.get(node.name, 0.0) + array.astype(np.float64).sum(other_axes)
            counts[node.name] = counts.get(node.name, 0) + array.size // array.shape[axis]
    return {name: total / counts[name] for name, total in sums.items()}
