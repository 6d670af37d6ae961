"""Learned rounding: a weight goes up or down by what its layer's output needs, not by what is nearer.

For each layer the inputs' second moments are gathered from the kept samples; columns are rounded one after the other, and the error of each is
handed to those not yet rounded (the objective of AdaRound, Nagel et al. 2020, solved the way of OBQ and GPTQ). It needs the graph alone. Layers
are kept one by one, only where the answers gain.
"""

from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, attribute, copied
from onnxproof.quantization.workbench import Applied, Bench
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
ABOUT = "weights rounded by what the outputs need"
_GAIN_DB = 0.02
_DAMP = 0.01
_WIDEST = 4096
_ROWS = 1 << 14
_LIMITS = {"int8": (-127, 127), "uint8": (0, 255)}


def apply(bench: Bench) -> Applied | str:
    """Round layer after layer."""
    best, score, kept = bench.quantized, bench.score, 0
    plain = {node.name: node for node in bench.model.graph.node}
    names = [
        node.name
        for node in bench.quantized.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.name in plain
    ]
    for name in names:
        if bench.late:
            break
        bench.tell(f"rounding of {name}")
        trial = _rounded(bench, best, name, plain[name])
        if trial is None:
            continue
        found = bench.judged(trial)
        if found.better(score, _GAIN_DB):
            best, score, kept = trial, found, kept + 1
    return (
        Applied(quantized=best, what=f"{kept} of {len(names)} layers rounded anew")
        if kept
        else "no layer's answers gain from another rounding"
    )


def _rounded(
    bench: Bench, quantized: onnx.ModelProto, name: str, plain: onnx.NodeProto
) -> onnx.ModelProto | None:
    made = copied(quantized)
    index, floats = Index(made), Index(bench.model)
    node = next(n for n in made.graph.node if n.name == name)
    dequantize, weight = index.makers.get(node.input[1]), floats.weight_of(plain)
    if (
        dequantize is None
        or dequantize.op_type != "DequantizeLinear"
        or weight is None
        or dequantize.input[0] not in index.weights
    ):
        return None
    moments = _moments(bench, made, node)
    if moments is None:
        return None
    integers, scale = (
        index.array(dequantize.input[0]),
        index.array(dequantize.input[1]).astype(np.float64),
    )
    rows, back = _matrix(node, floats.array(weight).astype(np.float64))
    if str(integers.dtype) not in _LIMITS or rows.shape[1] != moments.shape[-1]:
        return None
    step = (
        scale.reshape(-1, 1)
        if scale.size > 1
        else np.full((rows.shape[0], 1), float(scale.reshape(-1)[0]))
    )
    zero = (
        index.array(dequantize.input[2]).astype(np.float64).reshape(-1)[0]
        if len(dequantize.input) > 2
        else 0.0
    )
    low, high = _LIMITS[str(integers.dtype)]
    found = _solve(rows / step, moments, low - zero, high - zero) + zero
    index.store(dequantize.input[0], back(found).astype(integers.dtype))
    return made


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


def _moments(bench: Bench, model: onnx.ModelProto, node: onnx.NodeProto) -> Array | None:
    """The second moments of what the layer reads, in the quantized graph."""
    watched = copied(model)
    add_outputs(watched, [node.input[0]])
    session = ort.open(watched.SerializeToString(), "disabled", outputs=[node.input[0]])
    total: Array | None = None
    for _, batch in bench.samples:
        array = session.run(batch)[0]
        assert array is not None
        rows = _patches(node, array.astype(np.float64), model)
        if rows is None or rows.shape[1] > _WIDEST:
            return None
        rows = rows[:: max(1, len(rows) // _ROWS)]
        total = rows.T @ rows + (0.0 if total is None else total)
    return total


def _patches(node: onnx.NodeProto, x: Array, model: onnx.ModelProto) -> Array | None:
    """What each output element reads, one row each; None for what is grouped (each channel reads its own)."""
    if node.op_type != "Conv":
        return x.reshape(-1, x.shape[-1]) if not attribute(node, "transA", 0) else None
    kernel, strides, pads, dilations = _window(node, model)
    if int(attribute(node, "group", 1)) != 1 or len(kernel) != 2 or any(d != 1 for d in dilations):
        return None
    padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))[
        :, :, :: strides[0], :: strides[1]
    ]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, x.shape[1] * kernel[0] * kernel[1])


def _window(
    node: onnx.NodeProto, model: onnx.ModelProto
) -> tuple[tuple[int, ...], list[int], list[int], list[int]]:
    index = Index(model)
    maker = index.makers[node.input[1]]
    kernel = tuple(attribute(node, "kernel_shape", None) or index.weights[maker.input[0]].dims[2:])
    rank = len(kernel)
    return (
        kernel,
        list(attribute(node, "strides", [1] * rank)),
        list(attribute(node, "pads", [0] * 2 * rank)),
        list(attribute(node, "dilations", [1] * rank)),
    )


def _matrix(node: onnx.NodeProto, weight: Array) -> tuple[Array, Any]:
    """The weight as (outputs, inputs), and the way back."""
    if node.op_type == "Conv" or attribute(node, "transB", 0):
        return weight.reshape(weight.shape[0], -1), lambda rows: rows.reshape(weight.shape)
    return weight.T, lambda rows: np.ascontiguousarray(rows.T)
