"""Follow the module's own values through the file, to the first node that goes wrong."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.locate import profile
from onnxproof.diagnosis.locate.match import (
    Counterfactual,
    Front,
    counterparts,
    front,
    match,
    observe,
)
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.diagnosis.locate.stages import Ideal, given
from onnxproof.diagnosis.locate.subgraphs import Inside
from onnxproof.diagnosis.locate.upstream import Upstream, confirm, one_step
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import Graph, source_of
from onnxproof.reference.traced_value import Entry, Fetch
from onnxproof.results import Location, Profile, Stage, Suspect
from onnxproof.system.deadline import Deadline

Array = np.ndarray[Any, Any]
_FAULTS = 4
_TINY = 1e-12
_MENDS = "putting the true value in its place mends what follows"


def follow(scene: Scene, told: Ideal, stage: Stage) -> Location:
    """Compare, find the front, confirm it by counterfactual, and look for further faults behind it."""
    graph, session, ideal = Graph.of(scene.file), told.session, told.gap
    entries, every = entries_of(scene)
    fetch = _in_time(every, scene.deadline)
    feeds = given(scene)
    tolerance = float(np.clip(ideal / 1000, told.finest, max(told.finest, 1e-5)))
    names = list(session.output_names)
    order = [
        names.index(o.onnx_name) if o.onnx_name in names else -1 for o in scene.signature.outputs
    ]
    test = Counterfactual(session, feeds, scene.truth, order, fetch)
    guilty: list[int] = []
    cured: dict[str, Array] = {}
    truths: dict[int, Entry] = {}
    first: Front | None = None
    left = ideal
    for _ in range(_FAULTS):
        seen = observe(session, feeds, cured)[0] if cured else told.seen
        matched = match(seen, entries, tolerance)
        found = front(graph, matched, tolerance)
        first = first or found
        scene.profile = scene.profile or Profile(
            case=scene.case.name,
            against=profile.MODULE if scene.reference.tree is not None else profile.GRAPH,
            nodes=profile.of_matched(graph, matched, found.gaps, scene.noise),
        )
        scene.matched = scene.matched or {
            m.entry.place for m in matched.values() if m.entry is not None and m.gap <= tolerance
        }
        place, true, after = confirm(
            graph, found, entries, test, cured, left, fetch, guilty, truths
        )
        upstream = Upstream(graph, matched, feeds, entries, test, fetch, tolerance)
        asked = (
            [place]
            if true is not None
            else [p for p in found.suspects[: found.fronts] if p not in guilty][:_FAULTS]
        )
        sooner = next(
            (
                s
                for p in asked
                if p is not None
                and (s := upstream.sooner(found, p, cured, left, truths)) is not None
            ),
            None,
        )
        place, true, after = sooner or (place, true, after)
        if true is None:
            place, true, after = upstream.hidden(found, cured, left, truths) or (place, true, after)
        if place is not None and true is None:
            true = _moves_on(graph, found, place, session, feeds, cured, entries, tolerance, fetch)
            if (
                true is None
            ):  # the front is a step that the module never made; the fault shows behind it
                further = confirm(
                    graph, found, entries, test, cured, left, fetch, guilty, truths, later=True
                )
                if further[0] is not None and further[1] is not None:
                    guilty += [place] if one_step(graph, found, place, further[0], truths) else []
                    place, true, after = further
        if place is None:
            break
        guilty.append(place)
        left = after
        value = (
            fetch(true.place)
            if true is not None and after > max(tolerance * 10, ideal / 50)
            else None
        )
        if value is None:
            break
        cured[found.values[place]] = value
    assert first is not None
    ranked = list(dict.fromkeys([*guilty, *first.suspects]))[:12] or _makers(graph, scene)
    confirmed = set(guilty)
    for place in ranked:
        if scene.reference.tree is not None and (place in truths or place in first.entries):
            scene.counterparts[graph.name(place)] = truths.get(place, first.entries.get(place))
    inside = Inside(session, test, entries, fetch, tolerance)
    suspects = _suspects(
        graph,
        ranked,
        {p: truths.get(p) or first.entries.get(p) for p in ranked},
        first,
        confirmed,
        inside,
        scene.noise,
        ideal,
        mended=left < ideal / 20,
    )
    head = suspects[0] if suspects else None
    total = len([n for n in graph.nodes if any(o not in graph.static for o in n.output)])
    return Location(
        stage=stage,
        nodes=tuple(s.node for s in suspects),
        suspects=tuple(suspects),
        module=head.module if head else None,
        source=head.source if head else None,
        compared=first.compared,
        skipped=tuple(f"{name}: {why}" for name, why in (first.skipped | inside.skipped).items()),
        evidence=f"{first.compared} of {total} nodes compared {told.means}"
        + (
            f"; {head.node} is wrong while its inputs are right"
            if head
            else "; no node stands out: something may be missing"
        ),
    )


def _in_time(fetch: Fetch, deadline: Deadline) -> Fetch:
    """No value any more once the time is over: each is a forward pass of the module."""
    return lambda place: None if deadline.passed else fetch(place)


def _suspects(
    graph: Graph,
    ranked: Sequence[int],
    entries: Mapping[int, Entry | None],
    first: Front,
    confirmed: Collection[int],
    inside: Inside,
    noise: float,
    ideal: float,
    *,
    mended: bool,
) -> list[Suspect]:
    """The nodes with what is known of each; the node inside a branch or a loop before it where that is confirmed, after it otherwise."""
    found: list[Suspect] = []
    for p in ranked:
        whole = [
            _named(
                graph.name(p),
                graph.nodes[p],
                entries[p],
                first.gaps.get(p, 0.0) / max(noise, _TINY),
                _MENDS if p in confirmed and mended else "",
            )
        ]
        inner = inside.find(graph, p, {}, ideal) if p in confirmed else None
        within = (
            []
            if inner is None
            else [
                _named(
                    inner.path,
                    inner.node,
                    inner.entry,
                    inner.gap / max(noise, _TINY),
                    _MENDS if inner.confirmed else "",
                )
            ]
        )
        found += within + whole if inner is not None and inner.confirmed else whole + within
    return found


def _makers(graph: Graph, scene: Any) -> list[int]:
    """Where every inner value looks right: the nodes that make the outputs."""
    names = [
        o.onnx_name
        for o in scene.signature.outputs
        if scene.gap is None or o.name == scene.gap.output
    ]
    return [graph.makers[name] for name in names if name in graph.makers]


def _moves_on(
    graph: Graph,
    found: Front,
    place: int,
    session: Any,
    feeds: Mapping[str, Array],
    cured: Mapping[str, Array],
    entries: Sequence[Entry],
    tolerance: float,
    fetch: Any,
) -> Entry | None:
    """Where several faults stand one behind the other: the true value that mends what follows at once, if not the outputs."""
    for entry in counterparts(graph, place, found, entries)[:8]:
        value: Array | None = fetch(entry.place)
        if value is None:
            continue
        try:
            seen, _ = observe(session, feeds, {**cured, found.values[place]: value})
        except OnnxproofError:
            continue
        after = front(graph, match(seen, entries, tolerance), tolerance)
        if len(after.suspects) < 0.9 * len(found.suspects) and place not in after.suspects:
            return entry
    return None


def entries_of(scene: Scene) -> tuple[list[Entry], Fetch]:
    """The reference's own values; for causes and remedies the scene remembers those of a module."""
    entries, fetch = scene.reference.trace(scene.case.inputs)
    float64_session = scene.reference.float64_session()
    if float64_session is not None:
        scene.entries, scene.fetch = entries, fetch
        scene.wide = float64_session.session
    return entries, fetch


def _named(name: str, node: onnx.NodeProto, entry: Entry | None, ratio: float, why: str) -> Suspect:
    """A suspect with its module and line: the exporter's word first, then that of the reference's own operation."""
    module, source = source_of(node)
    if entry is not None:
        module, source = module or entry.module or None, source or entry.source
    return Suspect(
        node=name, op_type=node.op_type, ratio=ratio, why=why, module=module, source=source
    )
