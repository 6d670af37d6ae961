"""Nodes from which only the states of a loop are computed: what is wrong there is wrong about a state, whatever operator it is."""

from collections.abc import Collection

from onnxproof.diagnosis.counterfactuals.loop_states import loop_of
from onnxproof.diagnosis.counterfactuals.workbench import Workbench, node_name
from onnxproof.onnxmodel.graph import consumed_names

_BY_OPERATOR = ("attribute", "axis-order", "missing-op")
"""Codes that name what a node does, and not what it is for."""


def code_of_state(workbench: Workbench, code: str, changed: Collection[str]) -> str:
    """`cache` for a change of nodes that no answer depends on, where the code only says what the nodes do; else the code."""
    if code not in _BY_OPERATOR:
        return code
    names = changed or [node_name(node) for node in workbench.nodes[:1]]
    if names and _feeds_states_only(workbench, names):
        return "cache"
    return code


def _feeds_states_only(workbench: Workbench, names: Collection[str]) -> bool:
    signature = workbench.scene.signature
    confirmed = any(finding.code == "loop" for finding in workbench.findings)
    loop = loop_of(signature, confirmed=confirmed)
    if loop is None:
        return False
    states = {pair.output for pair in loop.states}
    kept = {
        output.onnx_name or output.name for output in signature.outputs if output.name in states
    }
    reached = _outputs_behind(workbench, names)
    return bool(reached) and reached <= kept


def _outputs_behind(workbench: Workbench, names: Collection[str]) -> set[str]:
    """The outputs of the file that depend on these nodes."""
    graph = workbench.model.graph
    reached: set[str] = set()
    for node in graph.node:  # in an order in which every value is computed before it is read
        if node_name(node) in names or not reached.isdisjoint(consumed_names(node)):
            reached.update(node.output)
    return reached & {port.name for port in graph.output}
