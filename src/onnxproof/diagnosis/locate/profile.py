"""The noise ratio along the graph: every node's value against the truth, in the order of the nodes.

It is a by-product where a fault was located. Where nothing is wrong it costs one pass in float64 and one with every value
as an output, so it is measured only when a report or a baseline asks for it.
"""

from collections.abc import Iterator, Mapping

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.evaluation import evaluate_in_float64, measure_inner_gaps
from onnxproof.diagnosis.locate.match import Match
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.onnxmodel.graph import Graph, source_of
from onnxproof.results import NodeGap, Profile

MODULE = "the file's values in float64 against the module's own"
GRAPH = "the file's values in float64 against the reference file's own"
RUNTIME = "the runtime's values against the file evaluated in float64"


def _node_gaps(
    graph: Graph,
    gaps: Mapping[int, float],
    noise: float,
) -> Iterator[NodeGap]:
    """One item for each node that was compared, by its place in the graph."""
    for place in sorted(gaps):
        module, source = source_of(graph.nodes[place])
        yield NodeGap(
            node=graph.name(place),
            op_type=graph.nodes[place].op_type,
            ratio=limits.noise_ratio(gaps[place], noise),
            module=module,
            source=source,
        )


def of_matches(
    graph: Graph,
    matches: Mapping[str, Match],
    wrong: Mapping[int, float],
    noise: float,
) -> tuple[NodeGap, ...]:
    """From the module's values that were found in the file; a step that the module never computed has none, and is left out."""
    value_gaps = {name: match.gap for name, match in matches.items()}
    gaps = {
        place: gap
        for place, gap in _largest_gaps(graph, value_gaps).items()
        if gap <= limits.PROFILE_LIMIT
    }
    return tuple(_node_gaps(graph, {**gaps, **wrong}, noise))


def of_values(
    graph: Graph,
    gaps: Mapping[str, float],
    noise: float,
) -> tuple[NodeGap, ...]:
    """From the gap of each value."""
    return tuple(_node_gaps(graph, _largest_gaps(graph, gaps), noise))


def _largest_gaps(graph: Graph, gaps: Mapping[str, float]) -> dict[int, float]:
    """For each node the largest gap of its values; what does not depend on the inputs has no noise."""
    largest: dict[int, float] = {}
    for place, node in enumerate(graph.nodes):
        outputs = [name for name in node.output if name in gaps and name not in graph.static]
        if outputs:
            largest[place] = max(gaps[name] for name in outputs)
    return largest


def measure(scene: Scene) -> Profile | None:
    """The profile of a file on one case, for a file that need not be wrong; None where its inner values can't be read."""
    evaluation = evaluate_in_float64(scene)
    if evaluation is None:
        return None
    inner = measure_inner_gaps(scene, evaluation)
    if inner is None:
        return None
    return runtime_profile(scene, inner.gaps)


def runtime_profile(scene: Scene, gaps: Mapping[str, float]) -> Profile:
    """The profile of the runtime's values, from the gap of each."""
    nodes = of_values(Graph.of(scene.file), gaps, scene.noise)
    return Profile(
        case=scene.case.name,
        against=RUNTIME,
        nodes=nodes,
    )
