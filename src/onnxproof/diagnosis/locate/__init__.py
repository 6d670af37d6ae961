"""Where it went wrong: the stage, the node, the line of Python.

The stages are walked from the file to the served answer. The file evaluated by the standard in float64 is wrong:
`export` (or `graph`, when the reference is itself an ONNX file). It is right there, and wrong as soon as it is run
without optimisation: `runtime`, or `precision` where the graph itself narrows. It is wrong only with optimisation:
`optimizer`, found by bisection over the runtime's own list.
"""

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate import follow, optimizers, port_exchange, refusal, runtime
from onnxproof.diagnosis.locate.evaluation import (
    Evaluation,
    ServedModel,
    evaluate_by_runtime,
    evaluate_in_float64,
    plain_backend,
)
from onnxproof.diagnosis.locate.port_exchange import PortExchange
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.onnxmodel.graph import Graph, make_suspect
from onnxproof.results import Domain, Gap, Location, NoiseKind, Stage, Status
from onnxproof.runtimes import parse
from onnxproof.system.allocator import release_free_memory

_ORDERING = ("TopK", "ArgMax", "ArgMin", "Unique", "NonMaxSuppression")


def locate(scene: Scene) -> Located:
    """Name the stage first, then the node by the means that fit the stage."""
    gap = scene.gap
    if gap is not None and gap.status is Status.REFUSED:
        return refusal.locate(scene, gap.detail)
    if gap is not None and gap.domain is Domain.TIES:
        return Located(location=_locate_ordering(scene))
    if gap is not None and gap.noise_kind in (NoiseKind.SIMULATED, NoiseKind.TWIN):
        from onnxproof.diagnosis.locate import quantized

        return quantized.locate(scene, locate)
    release_free_memory()
    served = ServedModel(scene)
    try:
        return _locate_by_stage(scene, served)
    finally:
        served.close()


def _locate_by_stage(scene: Scene, served: ServedModel) -> Located:
    """The first step on the way to the served answer that goes wrong, the cheapest questions first.

    1. Exchanged inputs or outputs, or an output of another dtype: the values themselves are right.
    2. Right without optimisation: an optimizer.
    3. Right in float64: the runtime, or the precision of the graph.
    4. Otherwise the file itself.
    """
    limit = limits.error_limit(scene.noise)
    served_error = served.error(scene.backend)
    if served_error > limit:
        exchange = port_exchange.find_exchange(  # step 1
            scene.signature, lambda signature: served.error(scene.backend, signature) <= limit
        )
        if exchange is not None:
            return _locate_exchange(scene, exchange)
    elif scene.gap is not None and scene.gap.status is Status.DTYPE:
        return Located(location=_locate_dtype(scene, scene.gap))
    plain_error = served.error(plain_backend(scene))
    if parse(scene.backend)[0] == "ort" and plain_error <= limit < served_error:  # step 2
        return Located(location=optimizers.locate(scene, limit))
    served.close()
    evaluation = evaluate_in_float64(scene)
    if evaluation is not None and _is_right_in_float64(scene, evaluation, limit):  # step 3
        return runtime.locate(scene, evaluation, limit)
    return _locate_in_file(scene, evaluation)  # step 4


def _is_right_in_float64(
    scene: Scene,
    evaluation: Evaluation,
    limit: float,
) -> bool:
    """Whether the file is right in float64, on this case and by the bias that verification measured."""
    if evaluation.gap > limits.float64_limit(limit):
        return False
    bias = scene.gap.bias if scene.gap is not None else None
    return bias is None or bias <= scene.policy.bias_limit


def _locate_ordering(scene: Scene) -> Location:
    """Equal values in another order: the nodes that order."""
    graph = Graph.of(scene.file)
    why = "it chooses among equal values"
    suspects = [
        make_suspect(graph, place, 0.0, why)
        for place, node in enumerate(graph.nodes)
        if node.op_type in _ORDERING
    ]
    location = Location(
        stage=scene.file_stage, evidence="with ties broken by one rule the two agree"
    )
    return name_suspects(location, suspects)


def _locate_dtype(scene: Scene, gap: Gap) -> Location:
    """Right values in another dtype: the node that computes the output."""
    graph = Graph.of(scene.file)
    names = [o.onnx_name for o in scene.signature.outputs if o.name == gap.output and o.onnx_name]
    producers = [graph.producers[name] for name in names[:1] if name in graph.producers]
    suspects = [make_suspect(graph, place, 0.0, gap.detail) for place in producers]
    location = Location(stage=Stage.EXPORT, evidence=f"another dtype: {gap.detail}")
    return name_suspects(location, suspects)


def _locate_exchange(scene: Scene, exchange: PortExchange) -> Located:
    """Inputs or outputs of one kind are exchanged: the nodes that read the inputs, or produce the outputs."""
    graph = Graph.of(scene.file)
    if exchange.kind == "output":
        places = [graph.producers[name] for name in exchange.names if name in graph.producers]
    else:
        places = [place for name in exchange.names for place in graph.consumers(name)]
    names = dict.fromkeys(graph.name(place) for place in places)
    location = Location(
        stage=Stage.SIGNATURE,
        nodes=tuple(names),
        evidence=exchange.what,
    )
    return Located(location=location, exchanged=exchange)


def _locate_in_file(scene: Scene, evaluation: Evaluation | None) -> Located:
    """The file itself is wrong: find the node in it."""
    evaluation = evaluation or evaluate_by_runtime(scene)
    if evaluation is None:
        location = Location(
            stage=scene.file_stage,
            evidence="the file differs from the reference; its values could not be followed",
        )
        return Located(location=location)
    return follow.follow(scene, evaluation)


__all__ = ["Located", "Scene", "locate"]
