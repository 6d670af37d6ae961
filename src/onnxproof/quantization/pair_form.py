"""A quantized graph of any tool in the one form that is studied: pairs of QuantizeLinear and DequantizeLinear with constant parameters.

PyTorch's exporter writes parameters as `Constant` nodes, zero points as `Cast(ConstantOfShape)`, and between the two nodes of a pair a `Cast` to the type that the
integers have already; others write integer operators (`operator_form`). None of that changes a value.
"""

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxproof.quantization.float_graph import attribute, copy_model
from onnxproof.quantization.operator_form import as_pairs, has_integer_operators

Array = np.ndarray[Any, Any]
_FOLDED = ("Constant", "ConstantOfShape", "Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that make parameters of other constants."""
_LARGEST = 1 << 20
"""Elements of a constant that is computed: parameters have one for each channel. Not measured."""
_INITIALIZERS_ALONE = 4
"""The version of the format from which on an initializer need not be an input of the graph as well."""


def in_pair_form(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that gives the same answers.

    1. What is computed from constants alone is an initializer.
    2. A Cast of integers to their own type is gone.
    3. Integer operators are pairs around the float operator.
    """
    changed = copy_model(model)
    _fold_constants(changed)
    _remove_casts(changed)
    if has_integer_operators(changed):
        changed = as_pairs(changed)
    return changed


def _fold_constants(model: onnx.ModelProto) -> None:
    """Step 1; a graph output keeps its node."""
    outputs = {value.name for value in model.graph.output}
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        folded = None
        if node.op_type in _FOLDED and not outputs.intersection(node.output):
            folded = _folded(model, node, known)
        if folded is None:
            kept.append(node)
        else:
            known[node.output[0]] = folded
            model.graph.initializer.append(folded)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    model.ir_version = max(model.ir_version, _INITIALIZERS_ALONE)


def _folded(
    model: onnx.ModelProto, node: onnx.NodeProto, known: dict[str, onnx.TensorProto]
) -> onnx.TensorProto | None:
    """What a node gives, where all that it reads is constant and small."""
    if any(name and name not in known for name in node.input):
        return None
    if node.op_type == "Constant" and node.attribute[0].type == onnx.AttributeProto.TENSOR:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(node.attribute[0].t)
        tensor.name = node.output[0]
        return tensor
    arrays = {name: numpy_helper.to_array(known[name]) for name in node.input if name}
    if _is_large(node, arrays):
        return None
    try:
        outputs: Any = ReferenceEvaluator(node, opsets=_opsets(model)).run(None, arrays)
        return numpy_helper.from_array(np.asarray(outputs[0]), node.output[0])
    except Exception:  # the evaluator raises whatever numpy does: then the node stays as it is
        return None


def _is_large(node: onnx.NodeProto, arrays: dict[str, Array]) -> bool:
    """True where a node reads or makes more than a parameter has."""
    if node.op_type == "ConstantOfShape":
        return bool(np.prod(arrays[node.input[0]]) > _LARGEST)
    return any(array.size > _LARGEST for array in arrays.values())


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {entry.domain: entry.version for entry in model.opset_import}


def _remove_casts(model: onnx.ModelProto) -> None:
    """Step 2: readers of such a Cast read what it reads."""
    types = _integer_types(model)
    outputs = {value.name for value in model.graph.output}
    sources: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = sources.get(name, name)
        same = node.op_type == "Cast" and types.get(node.input[0]) == attribute(node, "to")
        if same and node.output[0] not in outputs:
            sources[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)


def _integer_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element type of what each QuantizeLinear with a constant zero point gives."""
    tensors = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    types: dict[str, int] = {}
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear":
            continue
        if len(node.input) < 3 or not node.input[2]:
            types[node.output[0]] = onnx.TensorProto.UINT8
        elif node.input[2] in tensors:
            types[node.output[0]] = tensors[node.input[2]]
    return types
