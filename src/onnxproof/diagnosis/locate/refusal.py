"""A file that refuses an input which the reference takes: the runtime names the node that refuses, and the fault may lie before it.

A pooling window of the example's size gives another shape, and the Reshape behind it is the one to complain. So what can be
evaluated until then is compared with the reference's own values, and the first that is none of them comes first.
"""

import re
from dataclasses import replace

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate.comparison import compare
from onnxproof.diagnosis.locate.evaluation import evaluation_limit_s, model_inputs
from onnxproof.diagnosis.locate.experiment import observe
from onnxproof.diagnosis.locate.follow import with_module_trace
from onnxproof.diagnosis.locate.match import match
from onnxproof.diagnosis.locate.reference_trace import ReferenceTrace, trace_reference
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.sketch import Sketch
from onnxproof.onnxmodel.graph import Graph, consumed_names, make_suspect
from onnxproof.results import Location
from onnxproof.runtimes import reference as standard

_MOST_EARLIER = 3
"""Nodes before the refusing one that are named."""
_MOST_WORDS = 200
"""Characters of the runtime's message in the evidence."""


def locate(scene: Scene, message: str) -> Located:
    """The first nodes on the way to the refusal that compute what the reference does not, then the one that the runtime names."""
    graph = Graph.of(scene.file)
    names = re.findall(r"Name:\s*'([^']+)'", message)
    refusing = [place for place in range(len(graph.nodes)) if graph.name(place) in names]
    suspects = [make_suspect(graph, p, 0.0, "the runtime gives up here") for p in refusing]
    located = Located(
        location=Location(
            stage=scene.file_stage,
            evidence=f"the reference answers and the file refuses: {message[:_MOST_WORDS]}",
        )
    )
    if refusing:
        sketches_and_trace = _compare_until_refused(scene)
        if sketches_and_trace is not None:
            sketches, trace = sketches_and_trace
            earlier = _earlier_faults(graph, sketches, trace, refusing[0])
            why = "what it makes is none of the reference's values"
            suspects = [make_suspect(graph, p, 0.0, why) for p in earlier] + suspects
            located = with_module_trace(located, trace)
    return replace(located, location=name_suspects(located.location, suspects))


def _compare_until_refused(scene: Scene) -> tuple[dict[str, Sketch], ReferenceTrace] | None:
    """The values of the file up to the refusal, and those of the reference; None where they can't be followed."""
    try:
        return _evaluate_until_refused(scene), trace_reference(scene)
    except (OnnxproofError, RuntimeError):
        return None


def _earlier_faults(
    graph: Graph,
    sketches: dict[str, Sketch],
    trace: ReferenceTrace,
    refusing: int,
) -> list[int]:
    """The nodes before the refusing one that go wrong first."""
    tolerance = limits.FLOAT64_RESOLUTION
    comparison = compare(graph, match(sketches, trace.values, tolerance), tolerance)
    before = _ancestors(graph, refusing)
    return [node for node in comparison.origins if node in before][:_MOST_EARLIER]


def _evaluate_until_refused(scene: Scene) -> dict[str, Sketch]:
    """The file's values by the standard in float64, up to the node where it refuses too."""
    session = standard.open(scene.path, "float64")
    session.limit_s = evaluation_limit_s(scene)
    seen: dict[str, Sketch] = {}
    try:
        observe(session, model_inputs(scene), seen=seen)
    except OnnxproofError:
        pass
    finally:
        session.close()
    return seen


def _ancestors(graph: Graph, node: int) -> set[int]:
    """All nodes that a node depends on."""
    ancestors: set[int] = set()
    waiting = [node]
    while waiting:
        for name in consumed_names(graph.nodes[waiting.pop()]):
            producer = graph.producers.get(name)
            if producer is not None and producer not in ancestors:
                ancestors.add(producer)
                waiting.append(producer)
    return ancestors
