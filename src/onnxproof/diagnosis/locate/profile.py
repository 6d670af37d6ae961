"""The noise ratio along the graph: every node's value against the truth, in the order of the nodes.

It is a by-product where a fault was located. Where nothing is wrong it costs one pass in float64 and one with every value
as an output, so it is made only when a report or a baseline asks for it.
"""

from collections.abc import Mapping
from typing import Any

from onnxproof.onnxmodel.graph import Graph, source_of
from onnxproof.results import NodeGap, Profile

MODULE = "the file's values in float64 against the module's own"
GRAPH = "the file's values in float64 against the reference file's own"
RUNTIME = "the runtime's values against the file evaluated in float64"
_TINY = 1e-12


def steps(graph: Graph, gaps: Mapping[int, float], noise: float) -> tuple[NodeGap, ...]:
    """One entry for each node that was compared, by its place in the graph."""
    return tuple(
        NodeGap(
            node=graph.name(place),
            op_type=graph.nodes[place].op_type,
            ratio=gaps[place] / max(noise, _TINY),
            module=source_of(graph.nodes[place])[0],
            source=source_of(graph.nodes[place])[1],
        )
        for place in sorted(gaps)
    )


def of_matched(
    graph: Graph, matched: Mapping[str, Any], wrong: Mapping[int, float], noise: float
) -> tuple[NodeGap, ...]:
    """From the module's values that were found in the file; a step that the module never made has none, and is left out."""
    gaps = dict(wrong)
    for place, node in enumerate(graph.nodes):
        found = [
            matched[name].gap
            for name in node.output
            if name in matched and name not in graph.static
        ]
        if place not in gaps and found and max(found) <= 1e-5:
            gaps[place] = max(found)
    return steps(graph, gaps, noise)


def of_values(graph: Graph, gaps: Mapping[str, float], noise: float) -> tuple[NodeGap, ...]:
    """From the gap of each value; what does not depend on the inputs has no noise."""
    by_place = {
        place: max(found)
        for place, node in enumerate(graph.nodes)
        if (
            found := [
                gaps[name] for name in node.output if name in gaps and name not in graph.static
            ]
        )
    }
    return steps(graph, by_place, noise)


def measure(scene: Any) -> Profile | None:
    """The profile of a file on one case, for a file that need not be wrong; None where its inner values can't be read."""
    from onnxproof.diagnosis.locate.stages import ideal, inner_gaps

    told = ideal(scene)
    inner = inner_gaps(scene, told) if told is not None else None
    if inner is None:
        return None
    return Profile(
        case=scene.case.name,
        against=RUNTIME,
        nodes=of_values(Graph.of(scene.file), inner[0], scene.noise),
    )
