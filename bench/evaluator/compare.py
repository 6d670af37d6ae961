"""One configuration in our evaluator, in float64 and in the file's precision, beside ONNX Runtime's kernel."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from bench.evaluator.configurations import CONFIGURATIONS
from bench.evaluator.configurations.draw import Array, Configuration, Draw
from onnxproof.errors import OnnxproofError
from onnxproof.runtimes import reference

_FLOAT_ERROR = 1e-4
"""Largest difference in units of the largest answer: the worst of 200 configurations of any operator was 3e-6."""
_ROUNDED_ERROR = 2e-2
"""The same where the kernel rounds its inputs to 8 bits, of which the step is 1/255; the worst of 200 was 1.3e-2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of one configuration."""

    worst: float = 0.0
    """The largest difference in units of the largest answer; of integers, in steps."""
    problem: str = ""
    """What is wrong, or nothing."""
    refused: str = ""
    """Why ONNX Runtime or our evaluator did not run it, or nothing."""


def draw_configuration(op_type: str, seed: int, place: int) -> Configuration:
    """The configuration of one place; seed and place give the same again."""
    named = [ord(letter) for letter in op_type]
    return CONFIGURATIONS[op_type](Draw(np.random.default_rng([seed, place, *named])))


def compare(op_type: str, drawn: Configuration) -> Comparison:
    """Run it in each way and measure."""
    wanted = drawn.expected
    if wanted is None:
        try:
            wanted = run_kernel(op_type, drawn)
        except Exception as why:  # the runtime's errors share no base class
            return Comparison(refused=f"ONNX Runtime: {' '.join(str(why).split())[:200]}")
    model, feeds = _model(op_type, drawn)
    serialized = model.SerializeToString()
    worst = 0.0
    for option in ("float64", ""):
        try:
            found = reference.open(serialized, option).run(feeds)
        except OnnxproofError as why:
            return Comparison(refused=f"ours: {why.what} {' '.join(why.notes)}")
        for place, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
            mask = drawn.compared if place == 0 else None
            error, problem = _difference(np.asarray(ours), theirs, mask, rounds=drawn.rounds)
            if problem:
                return Comparison(worst=error, problem=f"output {place}: {problem}")
            worst = max(worst, error)
    return Comparison(worst=worst)


def run_kernel(op_type: str, drawn: Configuration) -> list[Array]:
    """The outputs of ONNX Runtime's kernel, without any optimisation of the graph."""
    model, feeds = _model(op_type, drawn)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds))


def _difference(
    ours: Array, theirs: Array, mask: Array | None, *, rounds: bool
) -> tuple[float, str]:
    """The largest difference, and what is wrong with it."""
    if ours.shape != theirs.shape:
        return np.inf, f"shape {ours.shape} instead of {theirs.shape}"
    if mask is not None:
        ours, theirs = ours[mask], theirs[mask]
    if not ours.size:
        return 0.0, "nothing to compare"
    if theirs.dtype.kind in "iub":
        steps = np.abs(ours.astype(int) - theirs.astype(int))
        problem = f"{steps.max()} steps" if steps.max() > 1 or steps.mean() > 0.1 else ""
        return float(steps.max()), problem
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return np.inf, "other values are finite"
    largest = max(float(np.abs(a[finite]).max(initial=0)), 1e-3)
    error = float(np.abs(a[finite] - b[finite]).max(initial=0)) / largest
    limit = _ROUNDED_ERROR if rounds else _FLOAT_ERROR
    return error, f"off by {error:.1e} of the largest answer" if error > limit else ""


def _model(op_type: str, drawn: Configuration) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The node with its largest input as an input of the graph, and all else as weights."""
    sizes = [-1 if value is None else value.size for value in drawn.inputs]
    data = next(place for place, size in enumerate(sizes) if size >= 0 and drawn.inputs[place].ndim)  # type: ignore[union-attr]
    names = [f"i{place}" if size >= 0 else "" for place, size in enumerate(sizes)]
    weights: list[Any] = []
    for place, value in enumerate(drawn.inputs):
        if value is not None and place != data:
            weights.append(onnx.numpy_helper.from_array(value, names[place]))
    fed = drawn.inputs[data]
    assert fed is not None
    port = helper.make_tensor_value_info(
        names[data], helper.np_dtype_to_tensor_dtype(fed.dtype), fed.shape
    )
    outputs = [f"y{place}" if there else "" for place, there in enumerate(drawn.outputs)]
    node = helper.make_node(op_type, names, outputs, domain=drawn.domain, **drawn.attributes)
    graph = helper.make_graph(
        [node],
        "operator",
        [port],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {names[data]: fed}
