"""Nodes that compute the index into a table: positions, as a rule."""

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Workbench

_PASSING = (
    "Cast",
    "Unsqueeze",
    "Squeeze",
    "Expand",
    "Reshape",
    "Identity",
    "Add",
    "Sub",
    "Mul",
    "Clip",
)
"""Operators that an index goes through."""
_MOST_STEPS = 12
"""Steps from a node to the table. Not measured."""


def computes_table_index(workbench: Workbench, node: onnx.NodeProto) -> bool:
    """Whether what a node computes becomes the index of a Gather from a table of float weights."""
    graph = workbench.model.graph
    tables = _tables(graph)
    reached = set(node.output)
    for _ in range(_MOST_STEPS):
        readers = [reader for reader in graph.node if reached.intersection(reader.input)]
        if any(_is_lookup(reader, tables, reached) for reader in readers):
            return True
        more = {name for r in readers if r.op_type in _PASSING for name in r.output}
        if more <= reached:
            return False
        reached |= more
    return False


def _tables(graph: onnx.GraphProto) -> set[str]:
    """The weights of several rows."""
    return {
        tensor.name
        for tensor in graph.initializer
        if len(tensor.dims) > 1 and tensor.data_type != onnx.TensorProto.INT64
    }


def _is_lookup(node: onnx.NodeProto, tables: set[str], reached: set[str]) -> bool:
    return node.op_type == "Gather" and node.input[0] in tables and node.input[1] in reached
