"""Follow the module's own values through the file, to the first node that goes wrong."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis import limits
from onnxproof.diagnosis.locate import profile
from onnxproof.diagnosis.locate.comparison import Comparison
from onnxproof.diagnosis.locate.evaluation import Evaluation, model_inputs
from onnxproof.diagnosis.locate.experiment import Experiment
from onnxproof.diagnosis.locate.fault_search import FaultSearch
from onnxproof.diagnosis.locate.reference_trace import ReferenceTrace, trace_reference
from onnxproof.diagnosis.locate.scene import Located, Scene, name_suspects
from onnxproof.diagnosis.locate.subgraphs import InnerNode, SubgraphSearch
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, source_of
from onnxproof.reference.traced_value import Fetch, TracedValue
from onnxproof.results import Location, Profile, Suspect
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
_MOST_SUSPECTS = 12
_FIXES = "putting the true value in its place mends what follows"


def follow(scene: Scene, evaluation: Evaluation) -> Located:
    """Locate the fault in the values of the file.

    1. Trace what the reference computes.
    2. Compare, confirm the first wrong node by counterfactual, and look for further faults behind it.
    3. Name the nodes, and look inside their subgraphs.
    """
    try:
        trace = trace_reference(scene)  # step 1
    except OnnxproofError as why:  # the evaluator takes the candidate and refuses the reference
        return Located(location=_not_followed(scene, why))
    search = _start_search(scene, evaluation, trace)
    counterparts: dict[str, TracedValue] = {}
    try:
        first = search.run(evaluation.seen)  # step 2
        ranked = _rank(scene, search, first)
        if trace.module_session is not None:
            counterparts = _named_counterparts(search, first, ranked)
        location = _describe(scene, evaluation, search, first, ranked)  # step 3
    except OnnxproofError as why:
        location = _not_followed(scene, why)
    located = Located(
        location=location,
        counterparts=counterparts,
        matched=search.matched,
        profile=_profile(scene, search),
    )
    return with_module_trace(located, trace)


def with_module_trace(located: Located, trace: ReferenceTrace) -> Located:
    """The same with what a module computed, for the causes."""
    if trace.module_session is None:
        return located
    return replace(
        located,
        traced_values=trace.values,
        fetch=trace.fetch,
        module_session=trace.module_session,
    )


def _not_followed(scene: Scene, why: OnnxproofError) -> Location:
    """The stage alone, with the reason."""
    return Location(
        stage=scene.file_stage,
        evidence=f"the file differs from the reference, whose values could not be followed: {why.what}",
    )


def _start_search(
    scene: Scene,
    evaluation: Evaluation,
    trace: ReferenceTrace,
) -> FaultSearch:
    """The search before its first round, with the tolerance that fits the error."""
    names = list(evaluation.session.output_names)
    outputs = [output.onnx_name for output in scene.signature.outputs]
    experiment = Experiment(
        graph=Graph.of(scene.file),
        session=evaluation.session,
        feeds=model_inputs(scene),
        truth=scene.truth,
        output_places=[names.index(name) if name in names else -1 for name in outputs],
        traced=trace.values,
        fetch=_until(scene.deadline, trace.fetch),
        tolerance=limits.value_tolerance(evaluation.gap, evaluation.resolution),
    )
    return FaultSearch(
        experiment=experiment,
        initial_error=evaluation.gap,
        error=evaluation.gap,
    )


def _until(deadline: Deadline, fetch: Fetch) -> Fetch:
    """No value any more once the time is over: each is a forward pass of the module."""

    def fetch_in_time(place: int) -> Array | None:
        if deadline.passed:
            return None
        return fetch(place)

    return fetch_in_time


def _rank(
    scene: Scene,
    search: FaultSearch,
    first: Comparison,
) -> list[int]:
    """The guilty nodes, then the suspects; where every inner value looks right, the producers of the outputs."""
    ranked = list(dict.fromkeys([*search.guilty, *first.suspects]))[:_MOST_SUSPECTS]
    if ranked:
        return ranked
    producers = search.experiment.graph.producers
    outputs = scene.signature.outputs
    if scene.gap is not None:
        outputs = tuple(output for output in outputs if output.name == scene.gap.output)
    names = [output.onnx_name for output in outputs if output.onnx_name is not None]
    return [producers[name] for name in names if name in producers]


def _named_counterparts(
    search: FaultSearch,
    first: Comparison,
    ranked: Sequence[int],
) -> dict[str, TracedValue]:
    """For the ranked nodes the traced value that each should have computed, as far as it is known."""
    known = {**first.nearest, **search.truths}
    graph = search.experiment.graph
    return {graph.name(node): known[node] for node in ranked if node in known}


def _profile(scene: Scene, search: FaultSearch) -> Profile | None:
    """The noise ratio along the graph, from the first comparison."""
    if search.first is None:
        return None
    against = profile.GRAPH if scene.reference.tree is None else profile.MODULE
    nodes = profile.of_matches(
        search.experiment.graph, search.first.matches, search.first.comparison.gaps, scene.noise
    )
    return Profile(
        case=scene.case.name,
        against=against,
        nodes=nodes,
    )


def _describe(
    scene: Scene,
    evaluation: Evaluation,
    search: FaultSearch,
    first: Comparison,
    ranked: Sequence[int],
) -> Location:
    """The location in words, with the suspects and with what was not compared."""
    graph = search.experiment.graph
    subgraphs = SubgraphSearch(search.experiment, search.initial_error)
    suspects = _make_suspects(scene, search, first, ranked, subgraphs)
    total = sum(any(name not in graph.static for name in node.output) for node in graph.nodes)
    compared = f"{first.compared} of {total} nodes compared {evaluation.means}"
    outcome = _outcome(search, suspects)
    skipped = {**first.skipped, **subgraphs.skipped}
    location = Location(
        stage=scene.file_stage,
        compared=first.compared,
        skipped=tuple(f"{name}: {why}" for name, why in skipped.items()),
        evidence=f"{compared}; {outcome}",
    )
    return name_suspects(location, suspects)


def _outcome(search: FaultSearch, suspects: Sequence[Suspect]) -> str:
    """What was found out about the first suspect: shown by a true value in its place, or only suspected."""
    if not suspects:
        return "no node stands out: something may be missing"
    wrong = f"{suspects[0].node} is wrong while its inputs are right"
    if not search.truths and not search.fixed:
        return f"{wrong}, but none of the reference's values could be matched to it: not confirmed"
    explained = 1.0 - search.error / max(search.initial_error, limits.SMALLEST_NOISE)
    return f"{wrong}; with true values in place {max(explained, 0.0):.0%} of the error goes away"


def _make_suspects(
    scene: Scene,
    search: FaultSearch,
    first: Comparison,
    ranked: Sequence[int],
    subgraphs: SubgraphSearch,
) -> list[Suspect]:
    """The nodes with what is known of each.

    The node inside a branch or a loop comes before it where it is confirmed, after it otherwise.
    """
    graph = search.experiment.graph
    suspects: list[Suspect] = []
    for node in ranked:
        guilty = node in search.guilty
        outer = _name_suspect(
            graph.name(node),
            graph.nodes[node],
            search.truths.get(node) or first.nearest.get(node),
            limits.noise_ratio(first.gaps.get(node, 0.0), scene.noise),
            confirmed=guilty and search.fixed,
        )
        inner = subgraphs.find(node) if guilty else None
        if inner is None:
            suspects.append(outer)
        elif inner.confirmed:
            suspects += [_inner_suspect(inner, scene.noise), outer]
        else:
            suspects += [outer, _inner_suspect(inner, scene.noise)]
    return suspects


def _inner_suspect(inner: InnerNode, noise: float) -> Suspect:
    """A node inside another as a suspect."""
    return _name_suspect(
        inner.path,
        inner.node,
        inner.traced,
        limits.noise_ratio(inner.gap, noise),
        confirmed=inner.confirmed,
    )


def _name_suspect(
    name: str,
    node: onnx.NodeProto,
    traced: TracedValue | None,
    ratio: float,
    *,
    confirmed: bool,
) -> Suspect:
    """A suspect with its module and line: the exporter's first, then those of the reference's own operation."""
    module, source = source_of(node)
    if traced is not None:
        module = module or traced.module or None
        source = source or traced.source
    return Suspect(
        node=name,
        op_type=node.op_type,
        ratio=ratio,
        why=_FIXES if confirmed else "",
        module=module,
        source=source,
    )
