"""Sound files that give other answers: nothing is refused, and FAITHFUL would be wrong."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.fuzz.damage import NotApplicable, Target, kind, nodes

_CHANGES = {
    "axis": 0,
    "keepdims": 1,
    "transB": 0,
    "alpha": 1.5,
    "beta": 0.5,
    "epsilon": 0.3,
    "perm": [0, 1, 2],
    "value_float": 3.0,
}
_SWAPS = {
    "Relu": "Sigmoid",
    "Sigmoid": "Tanh",
    "Tanh": "Sigmoid",
    "Add": "Mul",
    "Mul": "Add",
    "Exp": "Neg",
    "Neg": "Exp",
    "ArgMax": "ArgMin",
    "Greater": "Less",
    "MaxPool": "AveragePool",
}


def _floats(target: Target) -> onnx.TensorProto:
    inside = [
        a.t
        for node in nodes(target.model)
        for a in node.attribute
        if a.type == onnx.AttributeProto.TENSOR
    ]
    return target.one(
        [
            w
            for w in (*target.graph.initializer, *inside)
            if w.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT8)
            and w.raw_data
        ]
    )


@kind("weight-scaled")
def weight_scaled(target: Target) -> None:
    """A weight times a factor."""
    weight = _floats(target)
    values = numpy_helper.to_array(weight)
    factor = target.random.choice([1.01, 1.5, -1.0, 0.0])
    weight.CopyFrom(numpy_helper.from_array((values * factor).astype(values.dtype), weight.name))


@kind("weight-one-changed")
def weight_one_changed(target: Target) -> None:
    """One number of a weight is another."""
    weight = _floats(target)
    values = numpy_helper.to_array(weight).copy()
    place = target.random.randrange(values.size)
    values.reshape(-1)[place] = values.reshape(-1)[place] * 2 + 1
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))


@kind("weight-transposed")
def weight_transposed(target: Target) -> None:
    """A square weight is transposed; another one is read backwards."""
    weight = _floats(target)
    values = numpy_helper.to_array(weight)
    other = (
        values.T
        if values.ndim == 2 and values.shape[0] == values.shape[1]
        else values.reshape(-1)[::-1].reshape(values.shape)
    )
    weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(other), weight.name))


@kind("attribute-changed")
def attribute_changed(target: Target) -> None:
    """An attribute has another value that is allowed."""
    attribute = target.one(
        [a for node in nodes(target.model) for a in node.attribute if a.name in _CHANGES]
    )
    attribute.CopyFrom(
        helper.make_attribute(attribute.name, _CHANGES[attribute.name], attr_type=attribute.type)
    )


@kind("operator-swapped")
def operator_swapped(target: Target) -> None:
    """Another operator with the same inputs."""
    node = target.one([node for node in nodes(target.model) if node.op_type in _SWAPS])
    node.op_type = _SWAPS[node.op_type]


@kind("node-bypassed")
def node_bypassed(target: Target) -> None:
    """A node is left out, and its readers read its input."""
    node = target.one(
        [
            node
            for node in target.graph.node
            if node.input and node.op_type not in ("Constant", "Gather") and len(node.output) == 1
        ]
    )
    node.op_type, node.domain = "Identity", ""
    del node.input[1:]
    del node.attribute[:]


@kind("inputs-swapped")
def inputs_swapped(target: Target) -> None:
    """Two inputs of a node change places."""
    node = target.one(
        [
            node
            for node in nodes(target.model)
            if len(node.input) >= 2 and node.input[0] and node.input[1]
        ]
    )
    node.input[0], node.input[1] = node.input[1], node.input[0]


@kind("branches-swapped")
def branches_swapped(target: Target) -> None:
    """The two branches of an If change places."""
    node = target.one(
        [node for node in nodes(target.model) if node.op_type == "If" and len(node.attribute) == 2]
    )
    node.attribute[0].name, node.attribute[1].name = node.attribute[1].name, node.attribute[0].name


@kind("turns-changed")
def turns_changed(target: Target) -> None:
    """A Loop takes another number of turns, or none, or never ends."""
    weight = next((weight for weight in target.graph.initializer if weight.name == "turns"), None)
    if weight is None:
        raise NotApplicable
    weight.CopyFrom(
        numpy_helper.from_array(
            np.array(target.random.choice([0, 1, 3, 5, 40, 2**40, -1])), "turns"
        )
    )


@kind("outputs-swapped-names")
def outputs_swapped_names(target: Target) -> None:
    """Two outputs of a kind change their names."""
    outputs = target.graph.output
    if len(outputs) < 2:
        raise NotApplicable
    outputs[0].name, outputs[1].name = outputs[1].name, outputs[0].name


@kind("noise-added")
def noise_added(target: Target) -> None:
    """An output with random numbers added."""
    output = target.one(
        [
            port
            for port in target.graph.output
            if port.type.tensor_type.elem_type == TensorProto.FLOAT
        ]
    )
    target.graph.node.append(
        helper.make_node("RandomNormalLike", [output.name], ["drawn"], dtype=TensorProto.FLOAT)
    )
    target.graph.node.append(helper.make_node("Add", [output.name, "drawn"], ["noisy"]))
    output.name = "noisy"
