"""The independent judge: plain ONNX Runtime on the healthy and on the changed file says whether a change is a fault.

Nothing here uses onnxproof. A change is a fault where an output moves by more than `FAULT` times the healthy file's own noise
on the example or on one of the ordinary random inputs beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

from bench.mutants.graph import Array

FAULT = 100.0
"""Times the noise: what any user would call another answer. Asked for by the bench's definition, not measured."""
QUANTIZED_FAULT = 3.0
"""Times the distance of a healthy quantized file to its module: a loss that the quantization does not explain. Not measured."""
HEALTHY = 10.0
"""Times the noise that a healthy rewrite may move an output: not measured; the files that are drawn stand in the rows."""
QUANTIZED_HEALTHY = 1.0
"""The same for a quantized file, whose noise is its whole quantization error. Not measured."""
NOISE_FLOOR = 1e-7
"""Relative noise of an output that happens to be exact: about one rounding of float32."""

Feed = Mapping[str, Array]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A quiet session with one thread, without the optimizer: what the file says, node by node."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: onnx.ModelProto, feeds: Sequence[Feed]) -> list[list[Array]]:
    """The answers to each feed."""
    opened = session(model)
    return [[np.asarray(value) for value in opened.run(None, dict(feed))] for feed in feeds]


def run_all_values(model: onnx.ModelProto, feed: Feed) -> dict[str, Array]:
    """Every tensor that the nodes of the outer graph compute."""
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    own = {output.name for output in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name and name not in own]
    probed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    answers = session(probed).run(None, dict(feed))
    everything = dict(zip([*_output_names(model), *names], answers, strict=True))
    return {name: value for name, value in everything.items() if isinstance(value, np.ndarray)}


def _output_names(model: onnx.ModelProto) -> list[str]:
    return [output.name for output in model.graph.output]


def distance(healthy: Array, other: Array) -> float:
    """How far an answer is from the healthy one, relative to its size; infinite where it can't be compared."""
    if healthy.shape != other.shape or healthy.dtype.kind != other.dtype.kind:
        return float("inf")
    if healthy.dtype.kind not in "fc":
        return float("inf") if (healthy != other).any() else 0.0
    left, right = healthy.astype(np.float64), other.astype(np.float64)
    if (np.isfinite(left) & ~np.isfinite(right)).any():
        return float("inf")
    both = np.isfinite(left) & np.isfinite(right)
    if not both.any():
        return 0.0
    return _rms(left[both] - right[both]) / max(_rms(left[both]), 1e-30)


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def movement(
    healthy: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]], noise: Sequence[float]
) -> float:
    """The largest distance of any output of any feed, in multiples of that output's noise."""
    worst = 0.0
    for before, after in zip(healthy, other, strict=True):
        for left, right, floor in zip(before, after, noise, strict=True):
            worst = max(worst, distance(left, right) / max(floor, NOISE_FLOOR))
    return worst


def noise_of(answers: Sequence[Sequence[Array]], truth: Sequence[Sequence[Any]]) -> list[float]:
    """The noise of each output: the largest distance between the healthy file and the module."""
    columns: list[float] = [0.0] * len(answers[0])
    for given, right in zip(answers, truth, strict=True):
        for place, (left, exact) in enumerate(zip(given, right, strict=True)):
            columns[place] = max(columns[place], distance(np.asarray(exact), left))
    return columns
