"""Integer operators (QLinearConv, QGemm ...) as the float operator between DequantizeLinear and QuantizeLinear, so that one form is studied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.qdq_edit import add_initializer

Array = np.ndarray[Any, Any]
PART = " part "
"""Between the name of an operator and that of its part: exporters use `::` in names of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """Where an integer operator has its operands (value, scale, zero point), its bias, and its output's scale and zero point."""

    op_type: str
    operands: tuple[int, ...]
    output: int
    bias: int | None = None


_FORMS = {
    "QLinearConv": _Form(op_type="Conv", operands=(0, 3), output=6, bias=8),
    "QLinearMatMul": _Form(op_type="MatMul", operands=(0, 3), output=6),
    "QGemm": _Form(op_type="Gemm", operands=(0, 3), output=7, bias=6),
    "QLinearAdd": _Form(op_type="Add", operands=(0, 3), output=6),
    "QLinearMul": _Form(op_type="Mul", operands=(0, 3), output=6),
}


def has_integer_operators(model: onnx.ModelProto) -> bool:
    """True where there is one that can be written as pairs."""
    return any(node.op_type in _FORMS for node in model.graph.node)


def operator_name(node: onnx.NodeProto) -> str:
    """The name of the operator that a node of `as_pairs` comes from, or its own."""
    return (node.name or node.output[0]).partition(PART)[0]


def as_pairs(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which these operators are pairs; each new node has the name of the operator it comes from, and its part behind `PART`."""
    changed = copy_model(model)
    index = Index(model)
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        form = _FORMS.get(node.op_type)
        if form is None or not set(_parameters(node, form)) <= set(index.weights):
            nodes.append(node)
        else:
            nodes += _expand(changed, index, node, form)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    del changed.graph.value_info[:]
    return changed


def _parameters(node: onnx.NodeProto, form: _Form) -> list[str]:
    """The names of its scales, zero points and bias."""
    places = [place + step for place in form.operands for step in (1, 2)]
    places += [form.output, form.output + 1]
    if form.bias is not None:
        places.append(form.bias)
    return [node.input[place] for place in places if place < len(node.input) and node.input[place]]


def _expand(
    model: onnx.ModelProto, index: Index, node: onnx.NodeProto, form: _Form
) -> list[onnx.NodeProto]:
    """DequantizeLinear of each operand, the float operator, QuantizeLinear of what it gives."""
    name = node.name or node.output[0]
    made = []
    inputs = []
    for place in form.operands:
        result = f"{node.output[0]}_operand_{place}"
        read = helper.make_node(
            "DequantizeLinear", node.input[place : place + 3], [result], name=f"{name}{PART}{place}"
        )
        if index.array(node.input[place + 1]).size > 1:
            read.attribute.append(helper.make_attribute("axis", _filter_axis(node)))
        made.append(read)
        inputs.append(result)
    if form.bias is not None and len(node.input) > form.bias and node.input[form.bias]:
        made.append(_read_bias(model, index, node, form))
        inputs.append(made[-1].output[0])
    attributes = _attributes(node)
    written = node.input[form.output : form.output + 2]
    if not written or not written[0]:  # QGemm may give floats
        made.append(
            helper.make_node(
                form.op_type, inputs, node.output, name=f"{name}{PART}float", **attributes
            )
        )
        return made
    value = f"{node.output[0]}_float"
    made.append(
        helper.make_node(form.op_type, inputs, [value], name=f"{name}{PART}float", **attributes)
    )
    made.append(
        helper.make_node(
            "QuantizeLinear", [value, *written], node.output, name=f"{name}{PART}output"
        )
    )
    return made


def _filter_axis(node: onnx.NodeProto) -> int:
    """The axis of a weight that a scale for each filter goes along."""
    if node.op_type == "QLinearConv":
        return 0
    if node.op_type == "QGemm" and _attributes(node).get("transB"):
        return 0
    return 1


def _read_bias(
    model: onnx.ModelProto, index: Index, node: onnx.NodeProto, form: _Form
) -> onnx.NodeProto:
    """A bias goes by the product of the scales of input and weight."""
    assert form.bias is not None
    scales: Sequence[Array] = [index.array(node.input[place + 1]) for place in form.operands]
    product = np.asarray(scales[0].astype(np.float64) * scales[1])
    name = f"{node.output[0]}_bias_scale"
    add_initializer(model, product.astype(np.float32), name)
    read = helper.make_node(
        "DequantizeLinear",
        [node.input[form.bias], name],
        [f"{node.output[0]}_bias"],
        name=f"{node.name or node.output[0]}{PART}bias",
    )
    if product.size > 1:
        read.attribute.append(helper.make_attribute("axis", 0))
    return read


def _attributes(node: onnx.NodeProto) -> Mapping[str, Any]:
    return {held.name: helper.get_attribute_value(held) for held in node.attribute}
