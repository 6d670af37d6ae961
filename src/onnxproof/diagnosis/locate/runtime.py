"""The file is right in float64 and wrong as it is run: each value of the runtime against the standard's."""

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate import profile
from onnxproof.diagnosis.locate.evaluation import (
    Evaluation,
    InnerGaps,
    evaluation_limit_s,
    measure_inner_gaps,
    model_inputs,
    outputs_error,
)
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, make_suspect
from onnxproof.results import Location, Stage, Suspect
from onnxproof.runtimes import reference as standard

_MOST_SUSPECTS = 8


def locate(
    scene: Scene,
    evaluation: Evaluation,
    limit: float,
) -> Located:
    """The nodes that are wrong while their inputs are right, in the order of the graph."""
    inner = measure_inner_gaps(scene, evaluation)
    if inner is None:
        evidence = "the runtime differs from the standard; its inner values could not be read"
        return Located(location=Location(stage=Stage.RUNTIME, evidence=evidence))
    suspects = _suspects(scene, inner, limit)
    location = _runtime_or_precision(scene, limit, compared=len(inner.gaps))
    return Located(
        location=name_suspects(location, suspects),
        profile=profile.runtime_profile(scene, inner.gaps),
    )


def _suspects(
    scene: Scene,
    inner: InnerGaps,
    limit: float,
) -> list[Suspect]:
    """The guilty nodes with their noise ratios."""
    graph = Graph.of(scene.file)
    nodes = range(len(graph.nodes))
    guilty = [node for node in nodes if _is_guilty(graph, node, inner, limit)]
    suspects = []
    for node in guilty[:_MOST_SUSPECTS]:
        gap = max(inner.gaps.get(name, 0.0) for name in graph.nodes[node].output)
        suspects.append(make_suspect(graph, node, limits.noise_ratio(gap, scene.noise)))
    return suspects


def _runtime_or_precision(
    scene: Scene,
    limit: float,
    *,
    compared: int,
) -> Location:
    """The stage, by whether the standard is wrong in the types of the graph, too."""
    right = "evaluated by the standard, the graph is right in float64 and"
    if _loses_digits(scene, limit):
        return Location(
            stage=Stage.PRECISION,
            compared=compared,
            evidence=f"{right} wrong in its own types",
        )
    return Location(
        stage=Stage.RUNTIME,
        compared=compared,
        evidence=f"{right} right in its own types; the runtime is not",
    )


def _is_guilty(
    graph: Graph,
    place: int,
    inner: InnerGaps,
    limit: float,
) -> bool:
    """Wrong by far more than its inputs are and than its dtype explains; a Cast counts as soon as it loses anything."""
    node = graph.nodes[place]
    output_gap = max((inner.gaps[n] for n in node.output if n in inner.gaps), default=0.0)
    input_gap = max((inner.gaps.get(n, 0.0) for n in node.input), default=0.0)
    smallest = max(input_gap, limits.SMALLEST_NOISE)
    if node.op_type == "Cast" and output_gap > limits.INPUT_FACTOR * smallest:
        return True
    dtypes = [inner.dtypes.get(name, "float32") for name in node.output]
    steps = [limits.DTYPE_STEPS.get(dtype, limits.FLOAT32_STEP) for dtype in dtypes]
    explained = max(input_gap, *steps, 0.0)
    beyond_limit = output_gap > max(limit, limits.ERROR_FLOOR)
    return beyond_limit and output_gap > limits.INPUT_FACTOR * explained


def _loses_digits(scene: Scene, limit: float) -> bool:
    """Whether the standard's own evaluation, in the types that the graph names, is wrong too: then no kernel is to blame."""
    try:
        session = standard.open(scene.path)
        session.limit_s = evaluation_limit_s(scene)
        outputs = session.run(model_inputs(scene))
    except OnnxproofError:
        return False
    return outputs_error(scene, session.output_names, outputs) > limit
