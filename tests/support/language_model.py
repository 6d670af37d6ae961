"""A language model of a few thousand weights, written node by node: a table, two layers with a residual, a head."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TOKENS, WIDTH, INNER = 64, 32, 64


def language_model(
    *, tied: bool = False, gemm: bool = False, head_gain: float = 1.0
) -> onnx.ModelProto:
    """Random weights from a fixed seed; `gemm` writes the first layer as Gemm with a bias, on flattened places."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((TOKENS, WIDTH)).astype(np.float32)
    head = rng.standard_normal((WIDTH, TOKENS)).astype(np.float32) * 0.3 * head_gain
    if tied:
        head = np.ascontiguousarray(table.T)
    weights = {
        "table": table,
        "first": rng.standard_normal((WIDTH, INNER)).astype(np.float32) * 0.2,
        "bias": rng.standard_normal(INNER).astype(np.float32),
        "second": rng.standard_normal((INNER, WIDTH)).astype(np.float32) * 0.2,
        "head": head,
        "flat": np.array([-1, WIDTH]),
        "inner": np.array([0, -1, INNER]),
    }
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["x"], name="embed")]
    if gemm:
        nodes += [
            helper.make_node("Reshape", ["x", "flat"], ["rows"], name="flatten"),
            helper.make_node("Gemm", ["rows", "first", "bias"], ["h_rows"], name="first"),
            helper.make_node("Shape", ["x"], ["shape"], name="shape", end=2),
            helper.make_node("Concat", ["shape", "width"], ["full"], name="full", axis=0),
            helper.make_node("Reshape", ["h_rows", "full"], ["h"], name="unflatten"),
        ]
        weights["width"] = np.array([INNER])
    else:
        nodes.append(helper.make_node("MatMul", ["x", "first"], ["h"], name="first"))
    nodes += [
        helper.make_node("Tanh", ["h"], ["a"], name="tanh"),
        helper.make_node("MatMul", ["a", "second"], ["r"], name="second"),
        helper.make_node("Add", ["x", "r"], ["y"], name="residual"),
        helper.make_node("MatMul", ["y", "head"], ["logits"], name="head"),
    ]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "language",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["texts", "places"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", "places", TOKENS])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def save(path: Path, **options: bool | float) -> Path:
    """The model as a file."""
    onnx.save(language_model(**options), path)  # type: ignore[arg-type]
    return path


def token_ids(count: int = 40, length: int = 12, seed: int = 0) -> np.ndarray:
    """Texts of random tokens."""
    return np.random.default_rng(seed).integers(0, TOKENS, (count, length))
