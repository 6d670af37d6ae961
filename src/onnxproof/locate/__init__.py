"""Where it went wrong: the stage, the node, the line of Python.

The stages are walked from the file to the served answer. The file evaluated by the standard in float64 is wrong:
`export` (or `graph`, when the reference is itself an ONNX file). It is right there, and wrong as soon as it is run
without optimisation: `runtime`, or `precision` where the graph itself narrows. It is wrong only with optimisation:
`optimizer`, found by bisection over the runtime's own list.
"""

import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof import probe
from onnxproof.backends import parse
from onnxproof.backends import reference as standard
from onnxproof.errors import OnnxproofError
from onnxproof.execute import Candidate, Clock, feed
from onnxproof.locate import _optimizers, profile
from onnxproof.locate._graph import Graph, source_of
from onnxproof.locate._match import observe, relative
from onnxproof.onnxfile import OnnxFile
from onnxproof.oracles import Oracle
from onnxproof.types import Case, Domain, Gap, Location, NoiseKind, Profile, Signature, Source, Stage, Status, Suspect

Array = np.ndarray[Any, Any]
_MOST_SUSPECTS = 8
_SLOW_S = 30.0


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything locating and explaining work on: one case that shows the fault, and both models."""

    oracle: Oracle
    path: Path
    file: OnnxFile
    signature: Signature
    case: Case
    backend: str
    truth: list[Array]
    reference: list[Array]
    noise: float
    """The relative error that rounding explains for this case."""
    gap: Gap | None = None
    """The gap that is to be explained."""
    entries: list[Any] = field(default_factory=list)
    """What the module computed on this case, once it was followed."""
    counterparts: dict[str, Any] = field(default_factory=dict)
    """For a named node the module's own operation that it should have been."""
    matched: set[int] = field(default_factory=set)
    """The module's values that were found in the file."""
    fetch: Any = None
    """A way to have the value of an entry."""
    wide: Any = None
    """The module in float64, as it was followed."""
    exchanged: Any = None
    """The right pairing, where the given one is wrong."""
    profile: Profile | None = None
    """The noise ratio along the graph, as far as it was seen on the way."""


def locate(scene: Scene) -> Location | None:
    """Name the stage first, then the node by the means that fit the stage."""
    if scene.gap is not None and scene.gap.status is Status.REFUSED:
        return _refusal(scene, scene.gap.detail)
    if scene.gap is not None and scene.gap.domain is Domain.TIES:
        return _ordering(scene)
    if scene.gap is not None and scene.gap.noise_kind in (NoiseKind.SIMULATED, NoiseKind.TWIN):
        from onnxproof.locate import _quantized

        return _quantized.locate(scene, locate)
    swapped = _signature_fault(scene)
    if swapped is not None:
        return swapped
    served = _gap(scene, scene.backend)
    if scene.gap is not None and scene.gap.status is Status.DTYPE and served <= max(20 * scene.noise, 1e-6):
        return _dtype_fault(scene, scene.gap)
    in_ort = parse(scene.backend)[0] == "ort"
    plain = _gap(scene, "ort:disabled") if in_ort else served
    limit = max(20 * scene.noise, 1e-6)
    if in_ort and plain <= limit < served:
        return _optimizers.locate(scene, limit)
    session, ideal = _ideal(scene)
    if session is not None and ideal is not None and ideal <= max(limit / 4, 1e-6):
        return _runtime(scene, session, limit)
    return _file(scene, session, ideal if ideal is not None else plain)


def _refusal(scene: Scene, words: str) -> Location:
    """The runtime names the node at which it gave up."""
    graph = Graph.of(scene.file)
    named = [m for m in re.findall(r"Name:\s*'([^']*)'", words) if m]
    stage = Stage.EXPORT if scene.oracle.tree is not None else Stage.GRAPH
    places = [p for p in range(len(graph.nodes)) if graph.name(p) in named]
    suspects = [_suspect(graph, p, 0.0, "the runtime gives up here") for p in places]
    return Location(stage=stage, nodes=tuple(s.node for s in suspects), suspects=tuple(suspects), evidence=f"the reference answers and the file refuses: {words[:200]}",
                    module=suspects[0].module if suspects else None, source=suspects[0].source if suspects else None)


def _ordering(scene: Scene) -> Location:
    """Equal values in another order: the nodes that order."""
    graph = Graph.of(scene.file)
    places = [p for p, node in enumerate(graph.nodes) if node.op_type in ("TopK", "ArgMax", "ArgMin", "Unique", "NonMaxSuppression")]
    suspects = [_suspect(graph, p, 0.0, "it chooses among equal values") for p in places]
    stage = Stage.EXPORT if scene.oracle.tree is not None else Stage.GRAPH
    return Location(stage=stage, nodes=tuple(s.node for s in suspects), suspects=tuple(suspects), module=suspects[0].module if suspects else None,
                    source=suspects[0].source if suspects else None, evidence="with ties broken by one rule the two agree")


def _dtype_fault(scene: Scene, gap: Gap) -> Location:
    """Right values in another dtype: the node that makes the output."""
    graph = Graph.of(scene.file)
    name = next((o.onnx_name for o in scene.signature.outputs if o.name == gap.output), None)
    place = graph.makers.get(name or "")
    suspects = [_suspect(graph, place, 0.0, gap.detail)] if place is not None else []
    return Location(stage=Stage.EXPORT, nodes=tuple(s.node for s in suspects), suspects=tuple(suspects), evidence=f"another dtype: {gap.detail}",
                    module=suspects[0].module if suspects else None, source=suspects[0].source if suspects else None)


def _gap(scene: Scene, backend: str) -> float:
    try:
        candidate = Candidate(backend, scene.path, scene.signature, Clock())
        found = candidate.run(scene.case.inputs)
        candidate.close()
    except OnnxproofError:
        return float("inf")
    return max((relative(f, t) for f, t in zip(found, scene.truth, strict=True)), default=0.0)


def _ideal(scene: Scene) -> tuple[Any, float | None]:
    """The file as the standard defines it, in float64, and how far its answers are from the truth."""
    try:
        session = standard.open(scene.path, "float64")
        session.limit_s = _SLOW_S
        start = time.perf_counter()
        found = dict(zip(session.output_names, session.run(feed(scene.case.inputs, scene.signature)), strict=True))
    except OnnxproofError:
        return None, None
    session.limit_s = 4 * (time.perf_counter() - start) + 10  # watching costs more than running
    gaps = [relative(found.get(o.onnx_name or ""), t) for o, t in zip(scene.signature.outputs, scene.truth, strict=True)]
    return session, max(gaps, default=0.0)


def _signature_fault(scene: Scene) -> Location | None:
    """Inputs or outputs of one kind exchanged: does another pairing come right?"""
    from onnxproof.locate import _pairing

    found = _pairing.find(scene, lambda signature: _gap(replace_signature(scene, signature), scene.backend))
    if found is None:
        return None
    scene.exchanged = found
    graph = Graph.of(scene.file)
    nodes = [graph.name(p) for name in found.names for p in graph.consumers(name)] or [graph.name(graph.makers[n]) for n in found.names if n in graph.makers]
    return Location(stage=Stage.SIGNATURE, nodes=tuple(dict.fromkeys(nodes)), evidence=found.what)


def replace_signature(scene: Scene, signature: Signature) -> Scene:
    """The same scene under another pairing."""
    return replace(scene, signature=signature)


def _file(scene: Scene, session: Any, ideal: float) -> Location:
    """The file itself is wrong: find the node in it."""
    stage = Stage.EXPORT if scene.oracle.tree is not None else Stage.GRAPH
    if session is None or scene.oracle.tree is None:
        return Location(stage=stage, evidence="the file differs from the reference; its values could not be followed")
    from onnxproof.locate import _follow

    return _follow.follow(scene, session, stage, ideal)


def _runtime(scene: Scene, session: Any, limit: float) -> Location:
    """The file is right in float64 and wrong as it is run: compare each value with the standard's."""
    graph = Graph.of(scene.file)
    inner = inner_gaps(scene, session)
    if inner is None:
        return Location(stage=Stage.RUNTIME, evidence="the runtime differs from the standard; its inner values could not be read")
    gaps, narrow = inner
    scene.profile = Profile(case=scene.case.name, against=profile.RUNTIME, nodes=profile.of_values(graph, gaps, scene.noise))
    suspects = []
    for place, node in enumerate(graph.nodes):
        outs = [gaps[n] for n in node.output if n in gaps]
        ins = [gaps.get(n, 0.0) for n in node.input]
        step = max((_step(narrow.get(n, "float32")) for n in node.output), default=0.0)
        cast = node.op_type == "Cast" and outs and max(outs) > max(8 * max([*ins, 1e-12]), 1e-12)
        if cast or (outs and max(outs) > max(limit, 1e-6) and max(outs) > 8 * max([*ins, step])):
            suspects.append((max(outs) / max([*ins, 1e-9]), place))
    ranked = [place for _, place in sorted(suspects, key=lambda s: s[1])]
    precision = _loses_digits(scene, limit)
    named = [_suspect(graph, p, max(gaps.get(n, 0.0) for n in graph.nodes[p].output) / max(scene.noise, 1e-12)) for p in ranked[:_MOST_SUSPECTS]]
    first = named[0] if named else None
    return Location(stage=Stage.PRECISION if precision else Stage.RUNTIME, nodes=tuple(s.node for s in named), suspects=tuple(named), compared=len(gaps),
                    module=first.module if first else None, source=first.source if first else None,
                    evidence="evaluated by the standard, the graph is right in float64 and " + ("wrong in its own types" if precision else "right in its own types; the runtime is not"))


def _loses_digits(scene: Scene, limit: float) -> bool:
    """True when the standard's own evaluation, in the types that the graph names, is wrong too: then no kernel is to blame."""
    try:
        session = standard.open(scene.path)
        session.limit_s = _SLOW_S
        found = dict(zip(session.output_names, session.run(feed(scene.case.inputs, scene.signature)), strict=True))
    except OnnxproofError:
        return False
    return max((relative(found.get(o.onnx_name or ""), t) for o, t in zip(scene.signature.outputs, scene.truth, strict=True)), default=0.0) > limit


def inner_gaps(scene: Scene, session: Any) -> tuple[dict[str, float], dict[str, str]] | None:
    """How far each inner value of the runtime is from the standard's in float64, and its dtype; None where they can't be read."""
    from onnxproof.locate._sketch import distance, sketch

    feeds = feed(scene.case.inputs, scene.signature)
    made = Graph.of(scene.file).makers
    try:
        ideal, _ = observe(session, feeds)
        backend = "ort:disabled" if parse(scene.backend)[0] == "ort" else scene.backend
        actual = {n: np.asarray(value) for n, value in probe.values(backend, scene.path, feeds, [n for n in ideal if n in made]).items()}
    except OnnxproofError:
        return None
    if not actual:
        return None
    return {n: distance(sketch(value), ideal[n]) for n, value in actual.items()}, {n: str(value.dtype) for n, value in actual.items()}


def _step(dtype: str) -> float:
    return {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-15}.get(dtype, 1e-7)


def _suspect(graph: Graph, place: int, ratio: float, why: str = "", module: str | None = None, source: Source | None = None) -> Suspect:
    found_module, found_source = source_of(graph.nodes[place])
    return Suspect(node=graph.name(place), op_type=graph.nodes[place].op_type, ratio=ratio, why=why, module=module or found_module, source=found_source or source)


__all__ = ["Scene", "locate"]
