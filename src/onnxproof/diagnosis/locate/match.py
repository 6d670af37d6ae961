"""Which node is wrong while its inputs are right: the candidate's values in float64 against what the module computed.

In float64 there is no noise to speak of: a right value is found among the module's own to about 1e-7 (constants are
rounded to float32 in the file), a wrong one is not. Values inside a decomposition that the module never made are
excused when a right value follows from them. What is left has a front, and the front is tested by counterfactual:
put the true value in place of the suspect's output, and see whether the model's answers come right.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxproof.errors import BackendError, ModelError
from onnxproof.numerics.measure import as_real
from onnxproof.numerics.sketch import Pool, Shelf, Sketch, distance, sketch
from onnxproof.onnxmodel.graph import Graph, captured

if TYPE_CHECKING:
    from onnxproof.reference.traced_value import Entry

Array = np.ndarray[Any, Any]
_TOLERANCE = 3e-7
_PIECE = 1 << 20
_SAME = 1e-6
_FAR = 4
"""Steps from what a node is given beyond which the module's values are equally unlikely to be its own."""
NEAR = 1e-2
"""A value that is not further from one of the module's is that one, and wrong."""
_SIZES = frozenset({"Shape", "Size"})
"""They read no value: what follows from them excuses nothing."""
_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
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
    right: dict[str, Sketch] = field(default_factory=dict)
    """Values that were found among the module's."""
    fronts: int = 0
    """How many of the suspects have only right inputs; they come first."""
    compared: int = 0
    skipped: dict[str, str] = field(default_factory=dict)


def observe(
    session: Any,
    feeds: Mapping[str, Array],
    replace: Mapping[str, Array] | None = None,
    *,
    sketching: bool = True,
    seen: dict[str, Sketch] | None = None,
) -> tuple[dict[str, Sketch], list[Array]]:
    """Sketches of every value while the graph is evaluated, and its outputs; `replace` puts values in the place of others, `seen` has them also where it breaks off."""
    if hasattr(session, "observed"):
        return session.observed(feeds, replace or {}, sketching=sketching)  # type: ignore[no-any-return]
    seen = {} if seen is None else seen
    shelf = Shelf()

    def look(node: onnx.NodeProto, found: Any) -> Any:
        values = list(found)
        for place, name in enumerate(node.output[: len(values)]):
            if replace and name in replace:
                values[place] = in_place_of(np.asarray(values[place]), replace[name])
            if sketching and isinstance(values[place], np.ndarray | np.generic):
                seen[name] = sketch(np.asarray(values[place]), shelf)
        return tuple(values)

    session.observe(look)
    try:
        outputs = session.run(feeds)
    finally:
        session.observe(None)
    return seen, outputs


def in_place_of(old: Array, new: Array) -> Array:
    """A value for another's place, in its shape; its dtype stays, since a narrower one may be the fault."""
    return new.reshape(old.shape) if old.size == new.size else old


def match(
    values: Mapping[str, Sketch], entries: "Sequence[Entry]", tolerance: float = _TOLERANCE
) -> dict[str, Matched]:
    """For every value the nearest of the module's: in the same order where it can be, in any order otherwise."""
    by_count: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_count[entry.sketch.count].append(entry)
    pools = {count: Pool([e.sketch for e in alike]) for count, alike in by_count.items()}
    return {
        name: _nearest(value, by_count[value.count], pools[value.count], tolerance)
        if value.count in pools
        else Matched(value, None, float("inf"))
        for name, value in values.items()
    }


def _nearest(value: Sketch, options: "Sequence[Entry]", pool: Pool, tolerance: float) -> Matched:
    """In order if possible, a whole operation's value before that of a step in one.

    The module's values in the same shape and another order are a fault, even where the order is that of an earlier
    shape: a reshape that was to read a transposed value has it so.
    """
    gaps = pool.distances(value)
    hits, best = np.flatnonzero(gaps <= tolerance).tolist(), int(np.argmin(gaps))
    shaped = value.exact or any(
        _squeezed(options[place].sketch) == _squeezed(value) for place in hits
    )
    moved = None if shaped else _rearranged(value, options, pool, gaps, tolerance, moved=True)
    if hits and moved is None:
        whole = [place for place in hits if options[place].outer is None]
        return Matched(
            value,
            options[min(whole, key=lambda place: gaps[place], default=best)],
            float(gaps[best]),
        )
    turned = (
        None
        if value.exact or moved is not None
        else _rearranged(value, options, pool, gaps, tolerance, moved=False)
    )
    return moved or turned or Matched(value, options[best], float(gaps[best]))


def _rearranged(
    value: Sketch,
    options: "Sequence[Entry]",
    pool: Pool,
    gaps: Array,
    tolerance: float,
    *,
    moved: bool,
) -> Matched | None:
    """The same values in another order: in the same shape they were moved, which is wrong; in another shape it is a transposed copy.

    Sorting is dear, and two tensors of the same values have the same rms: only those are sorted.
    """
    alike = np.abs(pool.rms - value.rms) <= 4 * tolerance * np.maximum(pool.rms, value.rms)
    for place in reversed(np.flatnonzero(alike & (gaps > tolerance)).tolist()):
        entry = options[place]
        if (_squeezed(value) == _squeezed(entry.sketch)) == moved and distance(
            value, entry.sketch, any_order=True
        ) <= tolerance:
            return (
                Matched(value, entry, float(gaps[place]))
                if moved
                else Matched(value, entry, 0.0, same_layout=False)
            )
    return None


def _squeezed(value: Sketch) -> tuple[int, ...]:
    return tuple(n for n in value.shape if n != 1)


def front(
    graph: Graph,
    matched: Mapping[str, Matched],
    tolerance: float,
    wrong: Collection[str] = (),
    *,
    excuse: bool = True,
) -> Front:
    """The nodes with a value that is not right and inputs that are; `wrong` are values that only look right.

    What a right value is made from is excused, since a file may have steps that the module has not.
    """
    result = Front()
    right = _right(graph, matched, tolerance, wrong, excuse=excuse)
    result.right = {
        name: matched[name].sketch
        for name in right
        if name in matched and matched[name].sketch.telling
    }
    region: list[int] = []
    for place, node in enumerate(graph.nodes):
        outputs = [name for name in node.output if name and name not in graph.static]
        if not outputs:
            continue
        known = [
            name
            for name in outputs
            if name in matched and (graph.consumers(name) or name in graph.outputs)
        ]
        if not known and any(name in matched for name in outputs):
            continue  # nobody reads what it makes
        if not known:
            result.skipped[graph.name(place)] = "its value could not be read"
            continue
        result.compared += 1
        if any(name not in right for name in known):
            region.append(place)
            worst = max(known, key=lambda name: matched[name].gap)
            result.gaps[place], result.sketches[place], result.values[place] = (
                matched[worst].gap,
                matched[worst].sketch,
                worst,
            )
            if matched[worst].entry is not None:
                result.entries[place] = matched[worst].entry  # type: ignore[assignment]
    region = sorted(
        set(region) | set(_unfinished(graph, matched, region, right, tolerance, result))
    )
    first = [
        p
        for p in region
        if all(
            name in right or name in graph.static or name not in matched
            for name in captured(graph.nodes[p])
        )
    ]
    result.fronts = len(first)
    result.suspects = first + [p for p in region if p not in first]
    return result


def _unfinished(
    graph: Graph,
    matched: Mapping[str, Matched],
    region: Sequence[int],
    right: set[str],
    tolerance: float,
    result: Front,
) -> list[int]:
    """Nodes that reach an inner step of an operation whose whole result never comes: its last part is missing.

    So it is with a softmax that must give zeros for a fully masked row: the step before the mending is there, the
    mending is not, and the node to name is the softmax, not the product that stumbles over it.
    """
    whole = {
        m.entry.place
        for m in matched.values()
        if m.entry is not None and m.gap <= tolerance and m.entry.outer is None
    }
    found: list[int] = []
    for place in region:
        for name in captured(graph.nodes[place]):
            m, maker = matched.get(name), graph.makers.get(name)
            if (
                m is None
                or maker is None
                or name not in right
                or m.entry is None
                or m.entry.outer is None
                or m.entry.outer in whole
            ):
                continue
            own = matched.get(graph.nodes[place].output[0])
            further = own.entry if own is not None and own.entry is not m.entry else None
            if (
                further is not None
                and own is not None
                and (
                    further.outer == m.entry.outer
                    or (further.place == m.entry.outer and own.gap < NEAR)
                )
            ):
                continue  # the next step of the same operation, or its end, is there, and wrong: that one is guilty
            while (
                graph.nodes[maker].op_type in _MOVES
                and (before := graph.makers.get(graph.nodes[maker].input[0])) is not None
            ):
                maker, name = (
                    before,
                    graph.nodes[maker].input[0],
                )  # what only moves values leaves nothing out
            made = matched.get(name, m)
            (
                result.gaps[maker],
                result.entries[maker],
                result.sketches[maker],
                result.values[maker],
            ) = 1.0, m.entry, made.sketch, name
            right.discard(name)
            found.append(maker)
    return found


def _right(
    graph: Graph,
    matched: Mapping[str, Matched],
    tolerance: float,
    wrong: Collection[str],
    *,
    excuse: bool,
) -> set[str]:
    """Values found among the module's, and what they were made from: a right result does not come from wrong parts."""
    right = {
        name
        for name, m in matched.items()
        if m.gap <= (0.0 if m.sketch.exact else tolerance) and name not in wrong
    } | graph.inputs
    excused: set[str] = set()
    waiting = (
        [
            name
            for name in right
            if name in matched and matched[name].sketch.telling and matched[name].same_layout
        ]
        if excuse
        else []
    )
    while waiting:
        place = graph.makers.get(waiting.pop())
        for name in (
            captured(graph.nodes[place])
            if place is not None and graph.nodes[place].op_type not in _SIZES
            else ()
        ):
            if (
                name not in excused
                and name not in right
                and name not in wrong
                and not _in_part(graph, place, name, right | excused)
            ):
                excused.add(name)
                waiting.append(name)
    return right | excused


def _in_part(graph: Graph, place: int | None, name: str, right: set[str]) -> bool:
    """True where a node takes a part of the value, and another part of it is not right: then neither is the whole."""
    if place is None or graph.nodes[place].op_type not in _PARTS:
        return False
    return any(
        graph.nodes[n].op_type in _PARTS and not set(graph.nodes[n].output) & right
        for n in graph.consumers(name)
    )


def counterparts(
    graph: Graph, place: int, found: Front, entries: "Sequence[Entry]"
) -> "list[Entry]":
    """The module's values which this node should have made: those of its shape (or of it with leading dims merged), made of what the node is given in the fewest steps first, then the nearest."""
    value = found.sketches.get(place)
    if value is None:
        return []
    given = [found.right[name] for name in captured(graph.nodes[place]) if name in found.right]
    steps = {
        e.place: 0
        for e in entries
        if any(e.sketch.count == g.count and distance(g, e.sketch) <= _SAME for g in given)
    }
    for e in entries:  # a file's node may be several of the module's operations, such as a convolution with its norm
        steps.setdefault(e.place, min((steps[i] + 1 for i in e.inputs if i in steps), default=_FAR))
    alike = [
        e
        for e in entries
        if e.sketch.count == value.count
        and e.sketch.exact == value.exact
        and (e.sketch.shape[-1:] == value.shape[-1:] or _squeezed(e.sketch) == _squeezed(value))
    ]
    return sorted(
        alike,
        key=lambda e: (
            _squeezed(e.sketch) != _squeezed(value),
            min(max(steps[e.place], 1), _FAR),
            distance(value, e.sketch),
        ),
    )


class Counterfactual:
    """Evaluates the candidate with the true value in place of a suspect's output."""

    def __init__(
        self,
        session: Any,
        feeds: Mapping[str, Array],
        truth: Sequence[Array],
        order: Sequence[int],
        fetch: Callable[[int], Array | None],
    ) -> None:
        self._session, self._feeds, self._truth, self._order, self._fetch = (
            session,
            feeds,
            truth,
            order,
            fetch,
        )

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
    """rms of the difference over the rms of the truth; infinite for another shape. In pieces: neither is copied whole."""
    if found is None:
        return float("inf")
    found, truth = as_real(found), as_real(truth)
    if found.shape != truth.shape:
        return float("inf")
    flat, true = found.reshape(-1), truth.reshape(-1)
    differ, power, scale = 0, 0.0, 0.0
    for start in range(0, flat.size, _PIECE):
        f, t = (side[start : start + _PIECE].astype(np.float64) for side in (flat, true))
        odd = ~(np.isfinite(f) & np.isfinite(t))
        if odd.any():
            differ += int((odd & ~((f == t) | (np.isnan(f) & np.isnan(t)))).sum())
            f[odd] = t[odd] = 0.0
        f -= t
        power, scale = power + float(np.dot(f, f)), scale + float(np.dot(t, t))
    return float(
        (power / scale if scale else power / max(flat.size, 1)) ** 0.5
        + (differ / max(flat.size, 1)) ** 0.5
    )
