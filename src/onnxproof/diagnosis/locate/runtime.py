"""The file is right in float64 and wrong as it is run: each value of the runtime against the standard's."""

from onnxproof.diagnosis.locate import profile
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.diagnosis.locate.stages import Ideal, by_name, given, inner_gaps, slow_s
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, suspect
from onnxproof.results import Location, Profile, Stage
from onnxproof.runtimes import reference as standard

_MOST_SUSPECTS = 8
_STEPS = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-15}


def locate(scene: Scene, told: Ideal, limit: float) -> Location:
    """The nodes that are wrong while their inputs are right, in the order of the graph."""
    graph = Graph.of(scene.file)
    inner = inner_gaps(scene, told)
    if inner is None:
        return Location(
            stage=Stage.RUNTIME,
            evidence="the runtime differs from the standard; its inner values could not be read",
        )
    gaps, dtypes = inner
    scene.profile = Profile(
        case=scene.case.name,
        against=profile.RUNTIME,
        nodes=profile.of_values(graph, gaps, scene.noise),
    )
    places = [
        place for place in range(len(graph.nodes)) if _guilty(graph, place, gaps, dtypes, limit)
    ]
    precision = _loses_digits(scene, limit)
    named = [
        suspect(
            graph, p, max(gaps.get(n, 0.0) for n in graph.nodes[p].output) / max(scene.noise, 1e-12)
        )
        for p in places[:_MOST_SUSPECTS]
    ]
    first = named[0] if named else None
    return Location(
        stage=Stage.PRECISION if precision else Stage.RUNTIME,
        nodes=tuple(s.node for s in named),
        suspects=tuple(named),
        compared=len(gaps),
        module=first.module if first else None,
        source=first.source if first else None,
        evidence="evaluated by the standard, the graph is right in float64 and "
        + ("wrong in its own types" if precision else "right in its own types; the runtime is not"),
    )


def _guilty(
    graph: Graph, place: int, gaps: dict[str, float], dtypes: dict[str, str], limit: float
) -> bool:
    """Wrong by far more than its inputs are and than its dtype explains; a cast counts as soon as it loses anything."""
    node = graph.nodes[place]
    made = max((gaps[n] for n in node.output if n in gaps), default=0.0)
    given = max((gaps.get(n, 0.0) for n in node.input), default=0.0)
    if node.op_type == "Cast" and made > 8 * max(given, 1e-12):
        return True
    step = max((_STEPS.get(dtypes.get(n, "float32"), 1e-7) for n in node.output), default=0.0)
    return made > max(limit, 1e-6) and made > 8 * max(given, step)


def _loses_digits(scene: Scene, limit: float) -> bool:
    """True when the standard's own evaluation, in the types that the graph names, is wrong too: then no kernel is to blame."""
    try:
        session = standard.open(scene.path)
        session.limit_s = slow_s(scene)
        return by_name(scene, session.output_names, session.run(given(scene))) > limit
    except OnnxproofError:
        return False
