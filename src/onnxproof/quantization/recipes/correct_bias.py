"""Bias correction: rounding moves the mean of a layer's output, and the bias can take it back. Kept only where the answers gain.

The mean of each channel, as the float graph makes it, against the mean as the quantized graph makes it, with everything before it quantized.
"""

from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, copied
from onnxproof.quantization.workbench import Applied, Bench
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
ABOUT = "means that rounding moved are put back by the biases"
_GAIN_DB = 0.05
_ROUNDS = 2


def apply(bench: Bench) -> Applied | str:
    """Correct all biases at once, twice, and keep what helps."""
    best, score, kept = bench.quantized, bench.score, 0
    for _round in range(_ROUNDS):
        if bench.late:
            break
        trial = _corrected(bench, best)
        found = bench.judged(trial)
        if not found.better(score, _GAIN_DB):
            break
        best, score, kept = trial, found, kept + 1
    return (
        Applied(quantized=best, what=f"corrected {kept} times")
        if kept
        else "corrected biases give no better answers"
    )


def _corrected(bench: Bench, quantized: onnx.ModelProto) -> onnx.ModelProto:
    made = copied(quantized)
    index, plain = Index(made), {node.name: node for node in bench.model.graph.node}
    places = [
        (node, plain[node.name])
        for node in made.graph.node
        if node.op_type in ("Conv", "Gemm") and node.name in plain and len(node.input) > 2
    ]
    wanted, found = (
        _means(bench, bench.model, [p for _, p in places]),
        _means(bench, made, [n for n, _ in places]),
    )
    for node, _ in places:
        shift = wanted[node.name] - found[node.name]
        dequantize = index.makers.get(node.input[2])
        if (
            dequantize is not None
            and dequantize.op_type == "DequantizeLinear"
            and dequantize.input[0] in index.weights
        ):
            scale = index.array(dequantize.input[1]).astype(np.float64)
            integers = index.array(dequantize.input[0]).astype(np.float64) + np.rint(shift / scale)
            index.store(
                dequantize.input[0], np.clip(integers, -(2**31), 2**31 - 1).astype(np.int32)
            )
        elif node.input[2] in index.weights:
            index.store(node.input[2], (index.array(node.input[2]) + shift).astype(np.float32))
    return made


def _means(bench: Bench, model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> dict[str, Array]:
    """The mean of each channel of what these nodes make, before any rounding."""
    watched = copied(model)
    names = [node.output[0] for node in nodes]
    add_outputs(watched, names)
    session = ort.open(watched.SerializeToString(), "disabled", outputs=names)
    sums: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for _, batch in bench.samples:
        for node, array in zip(nodes, session.run(batch), strict=True):
            assert array is not None
            axis = 1 if node.op_type == "Conv" else array.ndim - 1
            axes = tuple(a for a in range(array.ndim) if a != axis)
            sums[node.name] = sums.get(node.name, 0.0) + array.astype(np.float64).sum(axes)
            counts[node.name] = counts.get(node.name, 0) + array.size // array.shape[axis]
    return {name: total / counts[name] for name, total in sums.items()}
