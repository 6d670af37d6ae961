"""Confirm a suspect by counterfactual, and ask whether what it reads is the one to blame: a wrong value may look right.

A transposition that does nothing gives its input; a frozen index gives another step's value; a mask that is moved by one
is made of sizes alone. Each is one of the module's values, or none that is compared, and the next node is the first that
is plainly wrong. So the makers of what the suspect reads are asked, too, what their true value mends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.diagnosis.locate.match import (
    NEAR,
    Counterfactual,
    Front,
    Matched,
    counterparts,
    front,
)
from onnxproof.numerics.sketch import distance, sketch
from onnxproof.onnxmodel.graph import Graph, captured
from onnxproof.reference.traced_value import Entry, Fetch

Array = np.ndarray[Any, Any]
Confirmed = tuple[int | None, Entry | None, float]
"""A node, the module's value that belongs in its place (None where none was shown to), and how far the answers are from the truth with it."""
_TRIED = 10
_DEEP = 6
_LAYOUT = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast"})
_CHOOSING = frozenset(
    {
        "Gather",
        "GatherND",
        "GatherElements",
        "Slice",
        "Split",
        "Concat",
        "Where",
        "Clip",
        "Mod",
        "Pad",
        "Expand",
        "Tile",
        "Compress",
        "Max",
        "Min",
        "SequenceAt",
        *_LAYOUT,
    }
)
"""They give some of what they are given, and the wrong part is the module's, too."""
_OWN = {
    "Clip": ("clamp", "clamp_min", "clamp_max", "hardtanh"),
    "Where": ("where", "masked_fill"),
    "Concat": ("cat", "stack"),
    "Mod": ("remainder", "fmod"),
    "Max": ("maximum", "clamp_min"),
    "Min": ("minimum", "clamp_max"),
    "Pad": ("constant_pad_nd", "pad"),
    "Expand": ("expand",),
    "Gather": ("embedding", "index", "index_select"),
}


def confirm(
    graph: Graph,
    found: Front,
    entries: Sequence[Entry],
    test: Counterfactual,
    cured: Mapping[str, Array],
    before: float,
    fetch: Any,
    known: Sequence[int],
    truths: dict[int, Entry],
    *,
    later: bool = False,
) -> Confirmed:
    """The first suspect whose true output mends the answers; failing that, the first suspect.

    A node behind the guilty one is mended, too, when its true output is put in place. So the front is asked first, with
    every value of the module that could stand there, and only then what lies behind it.
    """
    begin = [p for p in found.suspects[: found.fronts] if p not in known]
    behind = [p for p in found.suspects[found.fronts :] if p not in known]
    for place, options in (
        [(p, 2) for p in behind[:_TRIED]] if later else [(p, 12) for p in begin[:6]]
    ):
        for entry in counterparts(graph, place, found, entries)[:options]:
            value = None  # the last one is let go before the next is made
            value = fetch(entry.place)
            if value is None:
                continue
            after = test.distance({**cured, found.values[place]: value})
            if after < before / 20:
                truths[place] = entry
                return place, entry, after
    tried = begin or behind
    return (tried[0], None, before) if tried else (None, None, before)


def one_step(
    graph: Graph, found: Front, place: int, later: int, truths: Mapping[int, Entry]
) -> bool:
    """True where the front and the node that was confirmed behind it make one operation of the module: then the front is guilty."""
    mine, theirs = found.entries.get(place), truths[later]
    if mine is not None and {mine.place, mine.outer} & {
        theirs.place,
        theirs.outer,
        *theirs.inputs,
    } - {None}:
        return True
    here: int | None = later
    while here is not None and here != place and graph.nodes[here].op_type in _LAYOUT:
        here = graph.makers.get(graph.nodes[here].input[0])
    return here == place


@dataclass(frozen=True, slots=True)
class Upstream:
    """One comparison, and the way from a suspect to the makers of what it reads."""

    graph: Graph
    matched: Mapping[str, Matched]
    feeds: Mapping[str, Array]
    entries: Sequence[Entry]
    test: Counterfactual
    fetch: Fetch
    tolerance: float

    def sooner(
        self,
        found: Front,
        place: int,
        cured: Mapping[str, Array],
        before: float,
        truths: dict[int, Entry],
    ) -> Confirmed | None:
        """The earliest maker whose true value mends the answers as well as the suspect's does."""
        best: Confirmed | None = None
        for _ in range(_DEEP):
            step = self._step(found, place, cured, before, truths)
            if step is None or step[0] is None:
                break
            best, place = step, step[0]
        return best if best is None else self._content(best, truths)

    def hidden(
        self, found: Front, cured: Mapping[str, Array], before: float, truths: dict[int, Entry]
    ) -> Confirmed | None:
        """A value a little off whose fault something right was taken to excuse: a sum with a large mask, or a softmax of equals, hides it."""
        strict = front(self.graph, self.matched, self.tolerance, excuse=False)
        near = [
            p
            for p in strict.suspects[: strict.fronts]
            if p in strict.entries and strict.gaps[p] < NEAR
        ]
        for place in near[:_TRIED]:
            value = self.fetch(strict.entries[place].place)
            after = (
                self.test.distance({**cured, strict.values[place]: value})
                if value is not None
                else before
            )
            if after < before / 20:
                truths[place], found.sketches[place], found.values[place] = (
                    strict.entries[place],
                    strict.sketches[place],
                    strict.values[place],
                )
                return place, strict.entries[place], after
        return None

    def _content(self, best: Confirmed, truths: Mapping[int, Entry]) -> Confirmed:
        """What only moves or casts values has none of its own to get wrong: where it holds others than the module's, its input did."""
        place, entry, after = best
        while (
            place is not None
            and place in truths
            and self.graph.nodes[place].op_type in _LAYOUT - {"Identity"}
        ):  # that one stands where something was
            made, given = (
                self.matched.get(name)
                for name in (self.graph.nodes[place].output[0], self.graph.nodes[place].input[0])
            )
            maker = self.graph.makers.get(self.graph.nodes[place].input[0])
            if (
                made is None
                or given is None
                or maker is None
                or distance(made.sketch, truths[place].sketch, any_order=True) <= self.tolerance
            ):
                break
            whole = (
                given.gap <= self.tolerance
                and given.entry is not None
                and given.entry.outer is None
            )
            if whole and not self._passes_on(maker, given):
                break  # it was given what it should be given, and passes it on where something is missing
            place = maker
        return place, entry, after

    def _step(
        self,
        found: Front,
        place: int,
        cured: Mapping[str, Array],
        before: float,
        truths: dict[int, Entry],
    ) -> Confirmed | None:
        for name in captured(self.graph.nodes[place]):
            maker, made = self.graph.makers.get(name), self.matched.get(name)
            if maker is None or made is None or self.graph.nodes[maker].op_type == "Constant":
                continue  # a constant is right or wrong for whoever reads it
            found.sketches[maker], found.values[maker] = made.sketch, name
            for entry in self._instead(found, place, maker, name, made, truths):
                value = self.fetch(entry.place)
                after = self.test.distance({**cured, name: value}) if value is not None else before
                value = None  # a large one is let go before the next is made
                if after < before / 20:
                    truths[maker] = entry
                    return self._unexcused(found, maker, name, cured, before, truths) or (
                        maker,
                        entry,
                        after,
                    )
        return None

    def _instead(
        self,
        found: Front,
        place: int,
        maker: int,
        name: str,
        made: Matched,
        truths: Mapping[int, Entry],
    ) -> Iterator[Entry]:
        """What the maker may have had to give instead: anything for a node that does nothing or reads sizes alone, else what the suspect's own operation reads."""
        options = [
            e
            for e in counterparts(self.graph, maker, found, self.entries)
            if distance(e.sketch, made.sketch) > self.tolerance
        ]
        if self._idle(maker, made):
            yield from options[:_TRIED]
        elif (
            made.sketch.count > 1
            and made.gap > (0 if made.sketch.exact else self.tolerance)
            and (made.sketch.exact or name in self.graph.static)
        ):
            yield from options[:4]
        elif place in truths and self.graph.nodes[maker].op_type in _CHOOSING:
            own = made.entry is not None and made.entry.op in _OWN.get(
                self.graph.nodes[maker].op_type, ()
            )  # it does what it should, and what follows is missing
            read = set(self._read(truths[place])) if not own else set()
            yield from [e for e in options if e.place in read][:2]
            yield from [
                e for e in options if made.entry is not None and e.call == made.entry.call >= 0
            ][:4]  # another part of the same split

    def _read(self, entry: Entry) -> Iterator[int]:
        """What an operation reads, and through which views."""
        waiting = list(entry.inputs)
        for _ in range(16):
            if not waiting:
                return
            place = waiting.pop(0)
            yield place
            if (
                self.entries[place].sketch.count == entry.sketch.count
                or len(self.entries[place].inputs) == 1
            ):
                waiting += self.entries[place].inputs

    def _unexcused(
        self,
        found: Front,
        maker: int,
        name: str,
        cured: Mapping[str, Array],
        before: float,
        truths: dict[int, Entry],
    ) -> Confirmed | None:
        """A node still further ahead that the maker's value had excused."""
        sooner = front(self.graph, self.matched, self.tolerance, {name})
        sooner.suspects = [p for p in sooner.suspects[: sooner.fronts] if p < maker]
        further = confirm(
            self.graph, sooner, self.entries, self.test, cured, before, self.fetch, (), truths
        )
        if further[0] is None or further[1] is None:
            return None
        found.sketches.setdefault(further[0], sooner.sketches[further[0]])
        found.values.setdefault(further[0], sooner.values[further[0]])
        return further

    def _idle(self, place: int, made: Matched) -> bool:
        """True where a node passes on what it is given, and that is no accident of a few numbers."""
        return (
            made.sketch.telling or (made.sketch.exact and made.sketch.count >= 8)
        ) and self._passes_on(place, made)

    def _passes_on(self, place: int, made: Matched) -> bool:
        read = list(captured(self.graph.nodes[place]))
        given = [self.matched[name].sketch for name in read if name in self.matched] + [
            sketch(self.feeds[name]) for name in read if name in self.feeds
        ]
        return any(distance(made.sketch, passed) <= self.tolerance for passed in given)
