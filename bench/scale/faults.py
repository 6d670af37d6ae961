"""Faults deep inside a large model: a wrong epsilon, a flipped weight, a wrong scale; the weights beside it are shared."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

_BLOCK = 4096
"""External data is written at multiples of this, so that it can be mapped."""


def plant(name: str, path: Path, source: str) -> dict[str, Any]:
    """Write a copy of `source` with the fault that the copy's name ends with; says which node was changed."""
    del name
    model = onnx.load(source, load_external_data=False)
    kind = path.stem.rpartition("-")[2]
    node = _FAULTS[kind](model, Path(source).parent, path)
    for data in {_entry(t, "location") for t in model.graph.initializer if t.external_data}:
        target = path.parent / data
        if not target.exists():
            _link(Path(source).parent / data, target)
    onnx.save(model, path)
    return {"guilty": node.name}


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _entry(tensor: onnx.TensorProto, key: str) -> str:
    return next((entry.value for entry in tensor.external_data if entry.key == key), "")


def _middle(nodes: list[onnx.NodeProto]) -> onnx.NodeProto:
    return nodes[len(nodes) // 2]


def _epsilon(model: onnx.ModelProto, folder: Path, path: Path) -> onnx.NodeProto:
    """The epsilon of a norm in the middle, times 30 and at least Keras's default: BERT's own is 1e-12, and 1e-5 in its place changes no answer beyond noise."""
    norms = [n for n in model.graph.node if any(a.name == "epsilon" for a in n.attribute)]
    if norms:
        node = _middle(norms)
        attribute = next(a for a in node.attribute if a.name == "epsilon")
        attribute.f = max(30 * attribute.f, 1e-3)
        return node
    small = _scalars(model, lambda value: 0 < value < 1e-3)
    reciprocals = [n for n in model.graph.node if n.op_type == "Add" and n.input[1] in small]
    node = _middle(reciprocals)
    value = numpy_helper.from_array(np.float32(small[node.input[1]] * 30), "wrong_epsilon")
    model.graph.initializer.append(value)
    node.input[1] = "wrong_epsilon"
    return node


def _scalars(model: onnx.ModelProto, fits: Callable[[float], bool]) -> dict[str, float]:
    scalars = {}
    for tensor in model.graph.initializer:
        if not tensor.external_data and int(np.prod(tensor.dims)) == 1 and tensor.data_type == 1:
            value = float(numpy_helper.to_array(tensor).reshape(-1)[0])
            if fits(value):
                scalars[tensor.name] = value
    return scalars


def _scale(model: onnx.ModelProto, folder: Path, path: Path) -> onnx.NodeProto:
    """A matrix product in the middle, one per cent too large."""
    products = [n for n in model.graph.node if n.op_type in ("MatMul", "Gemm", "Conv")]
    node = _middle(products)
    place = list(model.graph.node).index(node)
    inner = f"{node.output[0]}_right"
    factor = numpy_helper.from_array(np.float32(1.01), "wrong_scale")
    model.graph.initializer.append(factor)
    wrong = onnx.helper.make_node("Mul", [inner, "wrong_scale"], [node.output[0]], name="wrong_mul")
    node.output[0] = inner
    model.graph.node.insert(place + 1, wrong)
    return wrong


def _weight(model: onnx.ModelProto, folder: Path, path: Path) -> onnx.NodeProto:
    """One row of a matrix in the middle with the other sign."""
    large = {t.name: t for t in model.graph.initializer if t.external_data and len(t.dims) == 2}
    products = [
        n for n in model.graph.node if n.op_type in ("MatMul", "Gemm") and n.input[1] in large
    ]
    node = _middle(products)
    tensor = large[node.input[1]]
    onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    array = numpy_helper.to_array(tensor).copy()
    array[len(array) // 2] *= -1
    data = path.with_suffix(".flipped")
    tensor.raw_data = array.tobytes()
    data.write_bytes(tensor.raw_data)
    onnx.external_data_helper.set_external_data(tensor, data.name, 0, array.nbytes)
    tensor.ClearField("raw_data")
    return node


_FAULTS: dict[str, Callable[[onnx.ModelProto, Path, Path], onnx.NodeProto]] = {
    "epsilon": _epsilon,
    "scale": _scale,
    "weight": _weight,
}
