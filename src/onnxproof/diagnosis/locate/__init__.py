"""Where it went wrong: the stage, the node, the line of Python.

The stages are walked from the file to the served answer. The file evaluated by the standard in float64 is wrong:
`export` (or `graph`, when the reference is itself an ONNX file). It is right there, and wrong as soon as it is run
without optimisation: `runtime`, or `precision` where the graph itself narrows. It is wrong only with optimisation:
`optimizer`, found by bisection over the runtime's own list.
"""

from onnxproof.diagnosis.locate import optimizers, refusal, runtime
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.diagnosis.locate.stages import Ideal, Served, ideal, probed
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, suspect
from onnxproof.options import Policy
from onnxproof.results import Domain, Gap, Location, NoiseKind, Stage, Status
from onnxproof.runtimes import parse
from onnxproof.system.allocator import release_free_memory


def locate(scene: Scene) -> Location | None:
    """Name the stage first, then the node by the means that fit the stage."""
    if scene.gap is not None and scene.gap.status is Status.REFUSED:
        return refusal.locate(scene, scene.gap.detail)
    if scene.gap is not None and scene.gap.domain is Domain.TIES:
        return _ordering(scene)
    if scene.gap is not None and scene.gap.noise_kind in (NoiseKind.SIMULATED, NoiseKind.TWIN):
        from onnxproof.diagnosis.locate import quantized

        return quantized.locate(scene, locate)
    release_free_memory()
    served = Served(scene)
    try:
        return _by_stage(scene, served)
    finally:
        served.close()


def _by_stage(scene: Scene, served: Served) -> Location | None:
    """The first pair of neighbours on the way from the file to the served answer that disagrees."""
    limit = max(20 * scene.noise, 1e-6)
    swapped = _signature_fault(scene, served, limit)
    if swapped is not None:
        return swapped
    if (
        scene.gap is not None
        and scene.gap.status is Status.DTYPE
        and served.gap(scene.backend) <= limit
    ):
        return _dtype_fault(scene, scene.gap)
    in_ort = parse(scene.backend)[0] == "ort"
    plain = served.gap("ort:disabled" if in_ort else scene.backend)
    if in_ort and plain <= limit < served.gap(scene.backend):
        return optimizers.locate(scene, limit)
    served.close()
    told = ideal(scene)
    biased = (
        scene.gap is not None
        and scene.gap.bias is not None
        and scene.gap.bias > Policy().bias_limit
    )  # then the graph in float64 was found wrong
    if told is not None and told.gap <= max(limit / 4, 1e-6) and not biased:
        return runtime.locate(scene, told, limit)
    return _file(scene, told, plain)


def _ordering(scene: Scene) -> Location:
    """Equal values in another order: the nodes that order."""
    graph = Graph.of(scene.file)
    places = [
        p
        for p, node in enumerate(graph.nodes)
        if node.op_type in ("TopK", "ArgMax", "ArgMin", "Unique", "NonMaxSuppression")
    ]
    suspects = [suspect(graph, p, 0.0, "it chooses among equal values") for p in places]
    stage = Stage.EXPORT if scene.reference.tree is not None else Stage.GRAPH
    return Location(
        stage=stage,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        module=suspects[0].module if suspects else None,
        source=suspects[0].source if suspects else None,
        evidence="with ties broken by one rule the two agree",
    )


def _dtype_fault(scene: Scene, gap: Gap) -> Location:
    """Right values in another dtype: the node that makes the output."""
    graph = Graph.of(scene.file)
    name = next((o.onnx_name for o in scene.signature.outputs if o.name == gap.output), None)
    place = graph.makers.get(name or "")
    suspects = [suspect(graph, place, 0.0, gap.detail)] if place is not None else []
    return Location(
        stage=Stage.EXPORT,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        evidence=f"another dtype: {gap.detail}",
        module=suspects[0].module if suspects else None,
        source=suspects[0].source if suspects else None,
    )


def _signature_fault(scene: Scene, served: Served, limit: float) -> Location | None:
    """Inputs or outputs of one kind exchanged: does another pairing come right?"""
    from onnxproof.diagnosis.locate import exchanged

    if served.gap(scene.backend) <= limit:
        return None
    found = exchanged.find(
        scene.signature, lambda signature: served.gap(scene.backend, signature) <= limit
    )
    if found is None:
        return None
    scene.exchanged = found
    graph = Graph.of(scene.file)
    nodes = [graph.name(p) for name in found.names for p in graph.consumers(name)] or [
        graph.name(graph.makers[n]) for n in found.names if n in graph.makers
    ]
    return Location(stage=Stage.SIGNATURE, nodes=tuple(dict.fromkeys(nodes)), evidence=found.what)


def _file(scene: Scene, told: Ideal | None, plain: float) -> Location:
    """The file itself is wrong: find the node in it."""
    stage = Stage.EXPORT if scene.reference.tree is not None else Stage.GRAPH
    told = told or probed(scene)
    if told is None:
        return Location(
            stage=stage,
            evidence="the file differs from the reference; its values could not be followed",
        )
    from onnxproof.diagnosis.locate import follow

    try:
        return follow.follow(scene, told, stage)
    except OnnxproofError as why:  # the evaluator takes the candidate and refuses the reference
        return Location(
            stage=stage,
            evidence=f"the file differs from the reference, whose values could not be followed: {why.what}",
        )


__all__ = ["Scene", "locate"]
