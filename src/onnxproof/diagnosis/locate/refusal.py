"""A file that refuses an input which the reference takes: the runtime names the node that gave up, and the fault may lie before it.

A pooling window of the example's size makes another shape, and the reshape behind it is the one to complain. So what can be
evaluated until then is compared with the reference's own values, and the first that is none of them comes first.
"""

import re

from onnxproof.diagnosis.locate.follow import entries_of
from onnxproof.diagnosis.locate.match import front, match, observe
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.diagnosis.locate.stages import given, slow_s
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.sketch import Sketch
from onnxproof.onnxmodel.graph import Graph, captured, suspect
from onnxproof.results import Location, Stage
from onnxproof.runtimes import reference as standard

_TOLERANCE = 3e-7


def locate(scene: Scene, words: str) -> Location:
    """The first node on the way to the refusal that makes what the reference has not, then the one that the runtime names."""
    graph = Graph.of(scene.file)
    stage = Stage.EXPORT if scene.reference.tree is not None else Stage.GRAPH
    named = [m for m in re.findall(r"Name:\s*'([^']*)'", words) if m]
    places = [p for p in range(len(graph.nodes)) if graph.name(p) in named]
    sooner = _sooner(scene, graph, places[0]) if places else []
    suspects = [
        suspect(graph, p, 0.0, "what it makes is none of the reference's values") for p in sooner
    ] + [suspect(graph, p, 0.0, "the runtime gives up here") for p in places]
    return Location(
        stage=stage,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        evidence=f"the reference answers and the file refuses: {words[:200]}",
        module=suspects[0].module if suspects else None,
        source=suspects[0].source if suspects else None,
    )


def _sooner(scene: Scene, graph: Graph, refusing: int) -> list[int]:
    """The nodes before the refusing one that go wrong first; none where the values can't be followed."""
    try:
        seen, entries = _until_refused(scene), entries_of(scene)[0]
    except (OnnxproofError, RuntimeError):
        return []
    found = front(graph, match(seen, entries, _TOLERANCE), _TOLERANCE)
    before = _ancestors(graph, refusing)
    return [p for p in found.suspects[: found.fronts] if p in before][:3]


def _until_refused(scene: Scene) -> dict[str, Sketch]:
    """The file's values by the standard in float64, up to the node where it gives up too."""
    session = standard.open(scene.path, "float64")
    session.limit_s = slow_s(scene)
    seen: dict[str, Sketch] = {}
    try:
        observe(session, given(scene), seen=seen)
    except OnnxproofError:
        pass
    finally:
        session.close()
    return seen


def _ancestors(graph: Graph, place: int) -> set[int]:
    found: set[int] = set()
    waiting = [place]
    while waiting:
        for name in captured(graph.nodes[waiting.pop()]):
            maker = graph.makers.get(name)
            if maker is not None and maker not in found:
                found.add(maker)
                waiting.append(maker)
    return found
