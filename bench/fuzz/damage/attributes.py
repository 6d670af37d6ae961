"""Attributes that are missing, of another type, out of range."""

import onnx
from onnx import AttributeProto, helper

from bench.fuzz.damage import NotApplicable, Target, kind, nodes

_NUMBERS = {
    "axis": [99, -99, 2**40],
    "group": [0, -1, 7],
    "keepdims": [5, -1],
    "transB": [0, 7, -1],
    "hidden_size": [0, -1, 10**9],
    "num_scan_inputs": [0, -1, 50],
    "to": [0, 99, -1],
}
_LISTS = {
    "perm": [[0, 0, 0], [0], [5, 6, 7], [-1, -2, -3], []],
    "kernel_shape": [[0, 0], [3], [-1, -1], [10**6, 10**6], []],
    "strides": [[0, 0], [-1, -1], [1], [2**40, 1]],
    "pads": [[-9, -9, -9, -9], [1], [2**40] * 4, []],
    "dilations": [[0, 0], [-1, -1], [10**9, 10**9]],
}
_FLOATS = {
    "epsilon": [float("nan"), float("inf"), -1.0, 0.0],
    "alpha": [float("nan"), 1e38],
    "beta": [float("-inf"), 0.0],
    "momentum": [float("nan")],
}


def _attributes(target: Target) -> list[AttributeProto]:
    return [attribute for node in nodes(target.model) for attribute in node.attribute]


@kind("attribute-missing")
def attribute_missing(target: Target) -> None:
    """An attribute is gone."""
    node = target.one([node for node in nodes(target.model) if node.attribute])
    del node.attribute[target.random.randrange(len(node.attribute))]


@kind("attribute-type-other")
def attribute_type_other(target: Target) -> None:
    """An attribute holds a value of another type."""
    attribute = target.one(_attributes(target))
    value = target.random.choice([1, 1.5, "text", [1, 2], [0.5], ["a", "b"], b"\xff\xfe"])
    attribute.CopyFrom(helper.make_attribute(attribute.name, value))


@kind("attribute-type-lie")
def attribute_type_lie(target: Target) -> None:
    """The type says one thing and the field holds another."""
    target.one(_attributes(target)).type = target.random.choice(list(range(0, 15)))


@kind("attribute-out-of-range")
def attribute_out_of_range(target: Target) -> None:
    """A number that the operator can't mean."""
    known = _NUMBERS | _LISTS | _FLOATS
    attribute = target.one([a for a in _attributes(target) if a.name in known])
    attribute.CopyFrom(
        helper.make_attribute(
            attribute.name, target.random.choice(known[attribute.name]), attr_type=attribute.type
        )
    )


@kind("attribute-added")
def attribute_added(target: Target) -> None:
    """An attribute where the operator has none of this name, or an odd one that it has."""
    node = target.node()
    name = target.random.choice(
        [
            "axis",
            "perm",
            "kernel_shape",
            "strides",
            "group",
            "epsilon",
            "unknown_attribute",
            "\n",
            "training_mode",
            "auto_pad",
            "direction",
        ]
    )
    value = target.random.choice([99, -1, 0, [0, 0], float("nan"), "text"])
    node.attribute.append(helper.make_attribute(name, value))


@kind("attribute-twice")
def attribute_twice(target: Target) -> None:
    """One attribute with two values."""
    node = target.one([node for node in nodes(target.model) if node.attribute])
    copy = node.attribute.add()
    copy.CopyFrom(node.attribute[0])
    copy.i += 1


@kind("attribute-reference")
def attribute_reference(target: Target) -> None:
    """An attribute that refers to one of a function, outside of any function."""
    attribute = target.one(_attributes(target))
    kept = attribute.type
    name = attribute.name
    attribute.Clear()
    attribute.name, attribute.type, attribute.ref_attr_name = name, kept, "somewhere"


@kind("attribute-strings")
def attribute_strings(target: Target) -> None:
    """Keys and values of an encoder that don't match, or are not UTF-8."""
    lists = [
        a for a in _attributes(target) if a.type in (AttributeProto.STRINGS, AttributeProto.FLOATS)
    ]
    attribute = target.one(lists)
    field = attribute.strings if attribute.type == AttributeProto.STRINGS else attribute.floats
    if not field:
        raise NotApplicable
    if attribute.type == AttributeProto.STRINGS and target.random.random() < 0.5:
        field[0] = b"\xff\xfe\x00"
    else:
        del field[-1]


@kind("shape-input-odd")
def shape_input_odd(target: Target) -> None:
    """A Reshape, Expand, Tile, Range or Resize with sizes that can't be."""
    operator, sizes = target.random.choice(
        [
            ("Reshape", [-1, -1]),
            ("Reshape", [7, 7]),
            ("Reshape", [0, 0, 0, 0, 0]),
            ("Expand", [-3]),
            ("Expand", [10**9]),
            ("Tile", [-1]),
            ("Reshape", [2**62, 4]),
            ("Tile", [10**8] * 4),
            ("ConstantOfShape", [10**6, 10**6]),
            ("ConstantOfShape", [-4]),
        ]
    )
    target.graph.initializer.append(
        helper.make_tensor("odd_sizes", onnx.TensorProto.INT64, [len(sizes)], sizes)
    )
    inputs = (
        ["odd_sizes"]
        if operator == "ConstantOfShape"
        else [target.graph.input[0].name, "odd_sizes"]
    )
    target.graph.node.append(helper.make_node(operator, inputs, ["odd_shaped"], name="odd_shape"))
    target.graph.output.append(onnx.ValueInfoProto(name="odd_shaped"))
