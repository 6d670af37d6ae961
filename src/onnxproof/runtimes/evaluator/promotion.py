"""A graph in float64: every float16, bfloat16 and float32 of weights, constants, casts and types is a float64."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.onnxmodel import expansion

_NARROW = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})
_DOUBLE = onnx.TensorProto.DOUBLE
_DTYPE_ATTRIBUTES = frozenset(
    {
        "to",
        "dtype",
        "output_dtype",
        "output_datatype",
        "precision",
        "stash_type",
        "softmax_precision",
    }
)
_DTYPE_BY_DEFAULT = {
    "RandomNormal": "dtype",
    "RandomUniform": "dtype",
    "SequenceEmpty": "dtype",
    "HannWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "BlackmanWindow": "output_datatype",
    "MelWeightMatrix": "output_datatype",
}
"""Operators that answer in float32 unless this attribute says otherwise."""
_STASHED = frozenset({"LayerNormalization", "RMSNormalization", "GroupNormalization"})
"""Operators that must be told to stash in float32 and then use the dtype that they are given."""


def promote(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of the model in which every float16, bfloat16 and float32 is a float64: weights, constants, casts, types."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    promote_in_place(copied, weights=True)
    return copied


def promote_in_place(model: onnx.ModelProto, *, weights: bool) -> None:
    """The same in the model itself; without `weights` its initializers stay, for an evaluator that widens them as it loads."""
    linked = _dtype_parameters(model.functions)
    _promote_graph(model.graph, linked, weights=weights)
    for function in model.functions:
        promote_nodes(function.node, linked)
        for value in function.value_info:
            _promote_type(value.type)
        for attribute in function.attribute_proto:
            if (
                attribute.name in linked.get((function.domain, function.name), ())
                and attribute.i in _NARROW
            ):
                attribute.i = _DOUBLE


def _promote_graph(
    graph: onnx.GraphProto,
    linked: Mapping[tuple[str, str], set[str]],
    *,
    weights: bool,
) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        _promote_type(value.type)
    if weights:
        for tensor in graph.initializer:
            _promote_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _promote_tensor(sparse.values)
    promote_nodes(graph.node, linked)


def _promote_type(kind: onnx.TypeProto) -> None:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(kind, which)
        if tensor.elem_type in _NARROW:
            tensor.elem_type = _DOUBLE
    elif which in ("sequence_type", "optional_type"):
        _promote_type(getattr(kind, which).elem_type)


def promote_nodes(
    nodes: Iterable[onnx.NodeProto],
    linked: Mapping[tuple[str, str], set[str]],
) -> None:
    """Casts, constants and subgraphs of these nodes; `linked` names the parameters of local functions that are dtypes."""
    for node in nodes:
        dtype_attributes = linked.get((node.domain, node.op_type), _DTYPE_ATTRIBUTES)
        for attribute in node.attribute:
            kept = attribute.name == "stash_type" and node.op_type in _STASHED
            kept |= node.op_type == "BitCast"  # the width of its target is its meaning
            if attribute.name in dtype_attributes and attribute.i in _NARROW and not kept:
                attribute.i = _DOUBLE
            _promote_attribute(attribute, linked)
        if node.op_type == "Constant":
            _promote_constant(node)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(
                onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1)))
            )
        elif node.op_type in _DTYPE_BY_DEFAULT:
            _promote_default(node)


def _promote_attribute(
    attribute: onnx.AttributeProto,
    linked: Mapping[tuple[str, str], set[str]],
) -> None:
    if attribute.type == onnx.AttributeProto.TENSOR:
        _promote_tensor(attribute.t)
    elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
        _promote_tensor(attribute.sparse_tensor.values)
    elif attribute.type == onnx.AttributeProto.TYPE_PROTO:
        _promote_type(attribute.tp)
    elif attribute.type == onnx.AttributeProto.GRAPH:
        _promote_graph(attribute.g, linked, weights=True)
    for graph in attribute.graphs:
        _promote_graph(graph, linked, weights=True)


def _promote_constant(node: onnx.NodeProto) -> None:
    """`value_float` is float32 by its definition, so it becomes a tensor."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats") and not attribute.ref_attr_name:
            numbers: Any = list(attribute.floats)
            if attribute.name == "value_float":
                numbers = attribute.f
            value = np.array(numbers, np.float64)
            attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(value)))


def _promote_default(node: onnx.NodeProto) -> None:
    """Say float64 where the node leaves its dtype to the default."""
    name = _DTYPE_BY_DEFAULT[node.op_type]
    if name not in {attribute.name for attribute in node.attribute}:
        node.attribute.append(onnx.helper.make_attribute(name, int(_DOUBLE)))


def _promote_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _NARROW:
        wide = numpy_helper.from_array(
            numpy_helper.to_array(tensor).astype(np.float64), tensor.name
        )
        tensor.CopyFrom(wide)


def _dtype_parameters(functions: Iterable[onnx.FunctionProto]) -> dict[tuple[str, str], set[str]]:
    """For each local function, the parameters that its body uses as a dtype: a caller's FLOAT there must become DOUBLE."""
    parameters: dict[tuple[str, str], set[str]] = {}
    for _round in range(3):  # functions may call functions
        for function in functions:
            names = parameters.setdefault((function.domain, function.name), set())
            for node in expansion.walk(function.node):
                wanted = parameters.get((node.domain, node.op_type), _DTYPE_ATTRIBUTES)
                for attribute in node.attribute:
                    if attribute.ref_attr_name and attribute.name in wanted:
                        names.add(attribute.ref_attr_name)
    return parameters
