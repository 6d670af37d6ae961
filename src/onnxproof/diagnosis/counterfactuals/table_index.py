"""Nodes that compute positions: the index into a table, or a sum with positions that are an input."""

import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Workbench
from onnxproof.verification.rollout.state_names import words_of

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
POSITION_WORDS = frozenset({"pos", "position", "positions"})
"""Words of an input that counts places."""
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


def computes_position(workbench: Workbench, node: onnx.NodeProto) -> bool:
    """Whether a node computes a position: an index into a table, or from positions that are an input."""
    return computes_table_index(workbench, node) or _reads_positions(workbench, node)


def _reads_positions(workbench: Workbench, node: onnx.NodeProto) -> bool:
    """Whether a node reads an input that counts places, as it is or through what an index goes through."""
    graph = workbench.model.graph
    known = {port.name for port in graph.input if POSITION_WORDS & set(words_of(port.name))}
    for before in graph.node:
        if before.output[0] == node.output[0]:
            break
        if before.op_type in _PASSING and not known.isdisjoint(before.input):
            known.update(before.output)
    return not known.isdisjoint(node.input)


def _tables(graph: onnx.GraphProto) -> set[str]:
    """The weights of several rows."""
    return {
        tensor.name
        for tensor in graph.initializer
        if len(tensor.dims) > 1 and tensor.data_type != onnx.TensorProto.INT64
    }


def _is_lookup(node: onnx.NodeProto, tables: set[str], reached: set[str]) -> bool:
    return node.op_type == "Gather" and node.input[0] in tables and node.input[1] in reached
