"""The reference is an ONNX file, too: the operator and the attributes of its own node in the place of a located one."""

from collections.abc import Iterator

import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, node_name
from onnxproof.reference.graph import GraphReference


def try_reference_nodes(workbench: Workbench, codes: dict[str, str]) -> Tried | None:
    """The first located node that is right with the operator and attributes of its namesake; `codes` by operator, else `attribute`."""
    for node, own in _namesakes(workbench):

        def change(changed: onnx.NodeProto, own: onnx.NodeProto = own) -> None:
            changed.op_type, changed.domain = own.op_type, own.domain
            del changed.attribute[:]
            changed.attribute.extend(own.attribute)

        name = node_name(node)
        tried = workbench.try_model(
            workbench.with_node(node, change),
            evidence=f"{name} is {_describe(node, own)}, in the reference file {_describe(own, node)}; with that the answers are right",
            fix=f"make {name} {_describe(own, node)}",
            code=codes.get(node.op_type, "attribute"),
        )
        if tried is not None:
            return tried
    return None


def _namesakes(workbench: Workbench) -> Iterator[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """Located nodes, each with the other node of its name, or of its first output's, in the reference file."""
    reference = workbench.scene.reference
    if not isinstance(reference, GraphReference):
        return
    graph = onnx.load(reference.path, load_external_data=False).graph
    by_output = {node.output[0]: node for node in graph.node}
    by_name = {node.name: node for node in graph.node if node.name}
    for node in workbench.nodes[: limits.SUSPECTS_COMPARED]:
        own = by_name.get(node.name) or by_output.get(node.output[0])
        if own is None or len(own.input) != len(node.input) or _meaning(own) == _meaning(node):
            continue
        yield node, own


def _meaning(node: onnx.NodeProto) -> tuple[str, str, dict[str, bytes]]:
    attributes = {one.name: one.SerializeToString() for one in node.attribute}
    return node.domain, node.op_type, attributes


def _describe(node: onnx.NodeProto, other: onnx.NodeProto) -> str:
    """The operator with those of its attributes that the other node lacks or has otherwise."""
    others = _meaning(other)[2]
    differing = [
        _format(attribute)
        for attribute in node.attribute
        if others.get(attribute.name) != attribute.SerializeToString()
    ]
    if not differing:
        return node.op_type
    return f"{node.op_type} ({', '.join(differing)})"


def _format(attribute: onnx.AttributeProto) -> str:
    """Name and value; a float has the seven digits of float32."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, float):
        return f"{attribute.name}={value:.7g}"
    return f"{attribute.name}={value}"
