"""A node by its name or its output, and its attributes as plain values."""

from typing import Any

import onnx


def node_name(node: onnx.NodeProto) -> str:
    """A node's name, or that of its first output."""
    return node.name or node.output[0]


def node_with_output(graph: onnx.GraphProto, output: str) -> onnx.NodeProto:
    """The node whose first output has this name."""
    nodes: dict[str, onnx.NodeProto] = {node.output[0]: node for node in graph.node}
    return nodes[output]


def attribute_value(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Set an attribute; None removes it."""
    for old in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(old)
    if value is not None:
        node.attribute.append(onnx.helper.make_attribute(name, value))
