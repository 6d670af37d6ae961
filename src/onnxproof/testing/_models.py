"""The small models of the conformance kit."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Types = Mapping[str, tuple[str, Sequence[Any]]]
"""dtype and shape by name."""
ELEMENT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8,
}


def write_model(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Types,
    outputs: Types,
    weights: Mapping[str, Array] | None = None,
    *,
    external: bool = False,
) -> Path:
    """Write a model with these inputs and outputs, each with its dtype and shape."""
    tensors = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(
        list(nodes), "conformance", _value_infos(inputs), _value_infos(outputs), tensors
    )
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", 17)]
    opsets += [helper.make_opsetid(domain, 1) for domain in domains]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(
        model, path, save_as_external_data=external, location=f"{path.stem}.data", size_threshold=0
    )
    return path


def _value_infos(types: Types) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, ELEMENT_TYPES[dtype], list(shape))
        for name, (dtype, shape) in types.items()
    ]


def linear_model(
    folder: Path,
    *,
    external: bool = False,
) -> tuple[Path, Callable[[Array], Array]]:
    """relu(x @ w + b) with a batch that may vary."""
    rng = np.random.default_rng(7)
    w = rng.standard_normal((4, 3)).astype(np.float32)
    b = rng.standard_normal(3).astype(np.float32)
    name = "linear.onnx"
    if external:
        name = "linear-external.onnx"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    path = write_model(
        folder / name,
        nodes,
        {"x": ("float32", ["batch", 4])},
        {"y": ("float32", ["batch", 3])},
        {"w": w, "b": b},
        external=external,
    )
    return path, lambda x: np.maximum(x @ w + b, 0)


def batch(rows: int, seed: int = 0) -> Array:
    """Inputs of the linear model."""
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float32)


def arithmetic_model(folder: Path) -> Path:
    """Sum, difference and product, whose nodes are in another order than its outputs."""
    nodes = [
        helper.make_node("Mul", ["b", "a"], ["product"]),
        helper.make_node("Add", ["b", "a"], ["sum"]),
        helper.make_node("Sub", ["b", "a"], ["difference"]),
    ]
    kind = ("float32", [2, 3])
    return write_model(
        folder / "several.onnx",
        nodes,
        {"b": kind, "a": kind},
        {"sum": kind, "difference": kind, "product": kind},
    )
