"""Are the texts of an ONNX file UTF-8? Names and metadata are read everywhere, and protobuf hands out bytes where they are not."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx

from onnxproof.errors import ModelError

EXPORT_AGAIN = "export it again, or fetch it whole"
_SHOWN = 80
"""Characters of a name in a message."""


def check_text(model: onnx.ModelProto, path: Path) -> None:
    """Refuse names and metadata that are not UTF-8."""
    for where, text in _texts(model):
        if not isinstance(text, str):  # protobuf hands out bytes where they are no UTF-8
            raise not_utf8(where, text, path)


def _texts(model: onnx.ModelProto) -> Iterator[tuple[str, object]]:
    """Every text that is read here, with what it is."""
    for entry in (*model.metadata_props, *model.graph.metadata_props):
        yield from (("a key of the metadata", entry.key), ("a value of the metadata", entry.value))
    yield from (
        ("the producer's name", text) for text in (model.producer_name, model.producer_version)
    )
    yield from (("the name of an operator set", entry.domain) for entry in model.opset_import)
    yield from _texts_of_graph(model.graph)
    for function in model.functions:
        yield from (
            ("the name of a function", text)
            for text in (function.name, function.domain, *function.input, *function.output)
        )
        yield from _texts_of_nodes(function.node)


def _texts_of_graph(graph: onnx.GraphProto) -> Iterator[tuple[str, object]]:
    """The texts of a graph."""
    yield "the name of a graph", graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield "the name of a value", value.name
        yield from (
            ("the name of a dim", dim.dim_param) for dim in value.type.tensor_type.shape.dim
        )
    for tensor in graph.initializer:
        yield "the name of a weight", tensor.name
        yield from (
            ("an entry of external data", text)
            for entry in tensor.external_data
            for text in (entry.key, entry.value)
        )
    yield from _texts_of_nodes(graph.node)


def _texts_of_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[tuple[str, object]]:
    """The texts of nodes, and of their subgraphs."""
    for node in nodes:
        yield from (
            ("the name of a node", node.name),
            ("an operator", node.op_type),
            ("an operator set", node.domain),
            ("a node's description", node.doc_string),
        )
        yield from (("the name of a value", text) for text in (*node.input, *node.output))
        for entry in node.metadata_props:
            yield from (("a node's metadata", text) for text in (entry.key, entry.value))
        for attribute in node.attribute:
            yield "the name of an attribute", attribute.name
            if attribute.HasField("g") or attribute.graphs:
                for graph in (attribute.g, *attribute.graphs):
                    yield from _texts_of_graph(graph)


def not_utf8(
    what: str,
    text: object,
    path: Path,
) -> ModelError:
    """The error for a text."""
    return ModelError(
        "not-utf8",
        f"{what} is not UTF-8",
        where=str(path),
        notes=[f"it is {shorten(ascii(text))}"],
        help=f"the file is damaged: {EXPORT_AGAIN}",
    )


def shorten(text: str) -> str:
    """A text, shortened for a message."""
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]}..."
