"""A decoder of GroupQueryAttention with its mask filled in: it counts a row's tokens by the mask, so only a mask of ones is meant."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.packages.cache_names import cache_place

MASK = "attention_mask"
_MOST_INLINE = 1 << 30
"""Bytes of weights that are written into a file: a protobuf holds 2 GB at most."""


def write_with_full_mask(path: Path, folder: Path) -> Path:
    """Write the decoder without its mask as an input; the file as it is where it takes no mask or no cache."""
    model = onnx.load(path)
    past = next((port.name for port in model.graph.input if cache_place(port.name)), None)
    if past is None or MASK not in [port.name for port in model.graph.input]:
        return path
    _fill_mask(model.graph, past)
    written = folder / path.name
    save(model, written)
    return written


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model; large weights go to a file beside it."""
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    onnx.save(model, path, save_as_external_data=size > _MOST_INLINE)


def _fill_mask(graph: onnx.GraphProto, past: str) -> None:
    """The mask is ones: rows by the places of the past and the tokens."""
    node, name = onnx.helper.make_node, f"{MASK}/ones"
    inputs = [port for port in graph.input if port.name != MASK]
    wide = next(port for port in graph.input if port.name == MASK)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(wide.type.tensor_type.elem_type)
    one = numpy_helper.from_array(np.ones(1, dtype))
    nodes = [
        node("Shape", ["input_ids"], [f"{name}.rows"], start=0, end=1),
        node("Shape", ["input_ids"], [f"{name}.tokens"], start=1, end=2),
        node("Shape", [past], [f"{name}.past"], start=2, end=3),
        node("Add", [f"{name}.past", f"{name}.tokens"], [f"{name}.total"]),
        node("Concat", [f"{name}.rows", f"{name}.total"], [f"{name}.shape"], axis=0),
        node("ConstantOfShape", [f"{name}.shape"], [MASK], value=one),
    ]
    for number, added in enumerate(nodes):
        added.name = f"{name}.{number}"
    kept = list(graph.node)
    del graph.input[:]
    del graph.node[:]
    graph.input.extend(inputs)
    graph.node.extend([*nodes, *kept])
