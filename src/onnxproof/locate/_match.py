"""Which node is wrong while its inputs are right: the candidate's values in float64 against what the module computed.

In float64 there is no noise to speak of: a right value is found among the module's own to about 1e-7 (constants are
rounded to float32 in the file), a wrong one is not. Values inside a decomposition that the module never made are
excused when a right value follows from them. What is left has a front, and the front is tested by counterfactual:
put the true value in place of the suspect's output, and see whether the model's answers come right.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxproof.errors import BackendError, ModelError
from onnxproof.locate._graph import Graph, captured
from onnxproof.locate._sketch import Sketch, distance, sketch

if TYPE_CHECKING:
    from onnxproof.locate._trace import Entry

Array = np.ndarray[Any, Any]
_TOLERANCE = 3e-7
_NEAR = 0.5
_SIZES = frozenset({"Shape", "Size"})
"""They read no value: what follows from them excuses nothing."""
_PARTS = frozenset({"Slice", "Split", "Gather", "GatherND"})


@dataclass(slots=True)
class Matched:
    """A value of the candidate and the module's value nearest to it."""

    sketch: Sketch
    entry: "Entry | None"
    gap: float
    same_layout: bool = True


@dataclass(slots=True)
class Front:
    """The outcome of one comparison: what was compared, and the nodes where wrongness begins, most guilty first."""

    suspects: list[int] = field(default_factory=list)
    gaps: dict[int, float] = field(default_factory=dict)
    entries: "dict[int, Entry]" = field(default_factory=dict)
    sketches: dict[int, Sketch] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    """For each suspect the value of it that is wrong."""
    fronts: int = 0
    """How many of the suspects have only right inputs; they come first."""
    compared: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


def observe(session: Any, feeds: Mapping[str, Array], replace: Mapping[str, Array] | None = None, *, sketching: bool = True) -> tuple[dict[str, Sketch], list[Array]]:
    """Sketches of every value while the graph is evaluated, and its outputs; `replace` puts values in the place of others."""
    seen: dict[str, Sketch] = {}

    def look(node: onnx.NodeProto, found: Any) -> Any:
        values = list(found)
        for place, name in enumerate(node.output[: len(values)]):
            if replace and name in replace:
                values[place] = _in_place_of(np.asarray(values[place]), replace[name])
            if sketching and isinstance(values[place], np.ndarray | np.generic):
                seen[name] = sketch(np.asarray(values[place]))
        return tuple(values)

    session.observe(look)
    try:
        outputs = session.run(feeds)
    finally:
        session.observe(None)
    return seen, outputs


def _in_place_of(old: Array, new: Array) -> Array:
    """A value for another's place, in its shape; its dtype stays, since a narrower one may be the fault."""
    return new.reshape(old.shape) if old.size == new.size else old


def match(values: Mapping[str, Sketch], entries: "Sequence[Entry]", tolerance: float = _TOLERANCE) -> dict[str, Matched]:
    """For every value the nearest of the module's: in the same order where it can be, in any order otherwise."""
    pool: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        pool[entry.sketch.count].append(entry)
    return {name: _nearest(value, pool.get(value.count, ()), tolerance) for name, value in values.items()}


def _nearest(value: Sketch, options: "Iterable[Entry]", tolerance: float) -> Matched:
    """In order if possible. The same shape in another order is wrong; another shape in another order is a transposed copy."""
    best = Matched(value, None, float("inf"))
    turned: Entry | None = None
    moved: Matched | None = None
    shaped = False
    for entry in options:
        gap = distance(value, entry.sketch)
        shaped |= gap <= tolerance and value.shape == entry.sketch.shape
        if gap < best.gap or (gap <= tolerance and best.entry is not None and best.entry.outer is not None and entry.outer is None):
            best = Matched(value, entry, min(gap, best.gap))
        if gap > tolerance and not value.exact and distance(value, entry.sketch, any_order=True) <= tolerance:
            if value.shape == entry.sketch.shape:
                moved = Matched(value, entry, gap)
            else:
                turned = entry
    if best.gap <= tolerance and (moved is None or shaped):
        return best
    if moved is not None:
        return moved
    return Matched(value, turned, 0.0, same_layout=False) if turned is not None else best


def front(graph: Graph, matched: Mapping[str, Matched], tolerance: float) -> Front:
    """The nodes with a value that is not right and inputs that are."""
    result = Front()
    right = _right(graph, matched, tolerance)
    region: list[int] = []
    for place, node in enumerate(graph.nodes):
        outputs = [name for name in node.output if name and name not in graph.static]
        if not outputs:
            continue
        known = [name for name in outputs if name in matched and (graph.consumers(name) or _is_output(graph, name))]
        if not known and any(name in matched for name in outputs):
            continue  # nobody reads what it makes
        if not known:
            result.skipped[graph.name(place)] = "its value could not be read"
            continue
        result.compared += 1
        if any(name not in right for name in known):
            region.append(place)
            worst = max(known, key=lambda name: matched[name].gap)
            result.gaps[place], result.sketches[place], result.values[place] = matched[worst].gap, matched[worst].sketch, worst
            if matched[worst].entry is not None:
                result.entries[place] = matched[worst].entry  # type: ignore[assignment]
    region = sorted(set(region) | set(_unfinished(graph, matched, region, right, tolerance, result)))
    first = [p for p in region if all(name in right or name in graph.static or name not in matched for name in captured(graph.nodes[p]))]
    result.fronts = len(first)
    result.suspects = first + [p for p in region if p not in first]
    return result


def _unfinished(graph: Graph, matched: Mapping[str, Matched], region: Sequence[int], right: set[str], tolerance: float, result: Front) -> list[int]:
    """Nodes that reach an inner step of an operation whose whole result never comes: its last part is missing.

    So it is with a softmax that must give zeros for a fully masked row: the step before the mending is there, the
    mending is not, and the node to name is the softmax, not the product that stumbles over it.
    """
    whole = {m.entry.place for m in matched.values() if m.entry is not None and m.gap <= tolerance and m.entry.outer is None}
    found: list[int] = []
    for place in region:
        for name in captured(graph.nodes[place]):
            m, maker = matched.get(name), graph.makers.get(name)
            if m is None or maker is None or name not in right or m.entry is None or m.entry.outer is None or m.entry.outer in whole:
                continue
            own = matched.get(graph.nodes[place].output[0])
            if own is not None and own.entry is not None and own.entry.outer == m.entry.outer:
                continue  # the next step of the same operation is there, and wrong: that one is guilty
            result.gaps[maker], result.entries[maker], result.sketches[maker], result.values[maker] = 1.0, m.entry, m.sketch, name
            right.discard(name)
            found.append(maker)
    return found


def _is_output(graph: Graph, name: str) -> bool:
    return any(port.name == name for port in graph.file.outputs)


def _right(graph: Graph, matched: Mapping[str, Matched], tolerance: float) -> set[str]:
    """Values found among the module's, and what they were made from: a right result does not come from wrong parts."""
    right = {name for name, m in matched.items() if m.gap <= (0.0 if m.sketch.exact else tolerance)} | {port.name for port in graph.file.inputs}
    excused: set[str] = set()
    waiting = [name for name in right if name in matched and matched[name].sketch.telling and matched[name].same_layout]
    while waiting:
        place = graph.makers.get(waiting.pop())
        for name in captured(graph.nodes[place]) if place is not None and graph.nodes[place].op_type not in _SIZES else ():
            if name not in excused and name not in right and not _in_part(graph, place, name, right | excused):
                excused.add(name)
                waiting.append(name)
    return right | excused


def _in_part(graph: Graph, place: int, name: str, right: set[str]) -> bool:
    """True where a node takes a part of the value, and another part of it is not right: then neither is the whole."""
    parts = [n for n in graph.consumers(name) if graph.nodes[n].op_type in _PARTS]
    return graph.nodes[place].op_type in _PARTS and any(not set(graph.nodes[n].output) & right for n in parts)


class Counterfactual:
    """Evaluates the candidate with the true value in place of a suspect's output."""

    def __init__(self, session: Any, feeds: Mapping[str, Array], truth: Sequence[Array], order: Sequence[int], fetch: Callable[[int], Array | None]) -> None:
        self._session, self._feeds, self._truth, self._order, self._fetch = session, feeds, truth, order, fetch

    def distance(self, replace: Mapping[str, Array] | None = None) -> float:
        """How far the outputs are from the truth, over all outputs."""
        try:
            _, outputs = observe(self._session, self._feeds, replace, sketching=False)
        except (BackendError, ModelError):
            return float("inf")
        worst = 0.0
        for place, t in zip(self._order, self._truth, strict=True):
            found = outputs[place] if 0 <= place < len(outputs) else None
            worst = max(worst, relative(found, t))
        return worst


def relative(found: Array | None, truth: Array) -> float:
    """rms of the difference over the rms of the truth; infinite for another shape."""
    if found is None or found.shape != truth.shape:
        return float("inf")
    f, t = found.astype(np.float64), truth.astype(np.float64)
    odd = ~(np.isfinite(f) & np.isfinite(t))
    differ = float((odd & ~((f == t) | (np.isnan(f) & np.isnan(t)))).mean()) if f.size else 0.0
    f, t = np.where(odd, 0, f), np.where(odd, 0, t)
    scale = float(np.sqrt(np.mean(t**2))) if t.size else 0.0
    gap = float(np.sqrt(np.mean((f - t) ** 2))) if f.size else 0.0
    return float((gap / scale if scale else gap) + differ**0.5)
