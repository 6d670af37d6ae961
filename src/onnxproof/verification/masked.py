"""What is not compared where a mask hides the very place, or everything that a query could see, and how that is tried.

Nothing defines an attention over no places at all: torch's fused kernel answers zeros, a finite fill value gives the mean,
an exporter something else. So a difference there is a note, but only after two checks:
1. `excused` says which values of an output are not compared; all others must agree as they are.
2. `wider_masks` gives masks in which every query sees something: there the two must agree;
   and each of them with another place hidden: there they must still.
A file that ignores its mask, inverts it or reads its neighbour's differs in 2, whatever it does where all is hidden.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from onnxproof.inputs.roles import Hides, Run, hidden_places, how_it_hides, with_hidden
from onnxproof.inputs.space import Role, Space
from onnxproof.results import Domain, Finding, Gap

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class Masks:
    """The masks among the inputs of a reference, each tried once, and only when they are needed."""

    space: Space
    run: Run

    @cached_property
    def ways(self) -> dict[str, Hides]:
        """How each input hides a place; one that was not shown to hide anything is left out."""
        ways = {}
        for slot in self.space.slots:
            if slot.role is not Role.MASK and not slot.additive:
                continue
            how = how_it_hides(self.space, slot, self.run)
            if how is not None:
                ways[slot.name] = how
        return ways

    def hidden(self, inputs: Inputs) -> dict[str, Array]:
        """The hidden places of every mask that hides any."""
        by_mask = {name: hidden_places(inputs[name], how) for name, how in self.ways.items()}
        return {name: places for name, places in by_mask.items() if places.any()}

    def excused(
        self,
        inputs: Inputs,
        sizes: Mapping[str, int],
        shape: Sequence[int],
    ) -> Array:
        """The values of an output of that shape which belong to a hidden place, or to a query that sees nothing."""
        region = np.zeros(tuple(shape), bool)
        for name, hidden in self.hidden(inputs).items():
            region |= _region_of_blind_queries(hidden, region.shape)
            if hidden.ndim == 2:
                region |= _region_of_places(hidden, region.shape, self._new_sizes(name, sizes))
        return region

    def wider_masks(self, inputs: Inputs) -> Iterator[tuple[Inputs, Inputs]]:
        """Inputs whose masks leave every query something to see, and the same with another place hidden in each row.

        One place is enough, the first, unless a query sees only its neighbourhood: then every other place.
        """
        hidden_by_mask = self.hidden(inputs)
        for visible_places in (_first, _every_other):
            wider = {}
            other = {}
            changed = False
            for name, hidden in hidden_by_mask.items():
                wider[name] = hidden & ~visible_places(hidden)
                other[name] = _hide_another(wider[name])
                changed |= bool((wider[name] != hidden).any())
            if changed:
                yield self._with_hidden(inputs, wider), self._with_hidden(inputs, other)

    def _with_hidden(self, inputs: Inputs, hidden: Mapping[str, Array]) -> Inputs:
        """The inputs with exactly these places hidden."""
        changed = dict(inputs)
        for name, places in hidden.items():
            changed[name] = with_hidden(inputs[name], self.ways[name], places)
        return changed

    def _new_sizes(self, name: str, sizes: Mapping[str, int]) -> set[int]:
        """Sizes of what a longer mask ends with: it covers a cache, too, and the output is of the new places alone."""
        dim = next(info.dims[-1] for info in self.space.signature.inputs if info.name == name)
        parts = self.space.relations.get(str(dim), "").split()
        if "+" not in parts:
            return set()
        return {sizes[part] for part in parts if part in sizes}


def _region_of_blind_queries(hidden: Array, shape: tuple[int, ...]) -> Array:
    """Where a row of the mask hides everything: all of that row of the batch, or all there is where the mask has no batch.

    A query that sees nothing may itself be seen by others in the next layer, so that its whole row of the batch is meant.
    """
    rows = hidden.all(-1)
    if hidden.ndim == 1 or hidden.shape[0] not in shape:
        return np.full(shape, bool(rows.any()))
    batch = hidden.shape[0]
    blank = rows.reshape(batch, -1).any(1)
    lined_up = [1] * len(shape)
    lined_up[shape.index(batch)] = batch
    return np.broadcast_to(blank.reshape(lined_up), shape)


def _region_of_places(
    hidden: Array,
    shape: tuple[int, ...],
    new_sizes: set[int],
) -> Array:
    """The values of an output that belong to hidden places, where it has the axes of the mask.

    1. The first axis is the mask's batch; without it no value belongs to a place.
    2. A later axis is as long as the mask.
    3. Or the second axis is as long as what the mask ends with: then its last places are meant.
    """
    batch, width = hidden.shape
    if not shape or shape[0] != batch:  # 1
        return np.zeros(shape, bool)
    lined_up = [1] * len(shape)
    lined_up[0] = batch
    if width in shape[1:]:  # 2
        lined_up[shape.index(width, 1)] = width
        return np.broadcast_to(hidden.reshape(lined_up), shape)
    if len(shape) > 1 and shape[1] in new_sizes and shape[1] < width:  # 3
        lined_up[1] = shape[1]
        newest = hidden[:, width - shape[1] :]
        return np.broadcast_to(newest.reshape(lined_up), shape)
    return np.zeros(shape, bool)


def _first(hidden: Array) -> Array:
    """The first place of each row."""
    places = np.zeros(hidden.shape, bool)
    places[..., 0] = True
    return places


def _every_other(hidden: Array) -> Array:
    """Every other place of each row, and the last."""
    places = np.zeros(hidden.shape, bool)
    places[..., ::2] = True
    places[..., -1] = True
    return places


def _hide_another(hidden: Array) -> Array:
    """One more place hidden in each row, with a visible one behind it that could see it; where that can't be, one more visible."""
    rows = hidden.reshape(-1, hidden.shape[-1]).copy()
    for row in rows:
        visible_places = np.flatnonzero(~row)
        covered_places = np.flatnonzero(row)
        place = -1
        if len(visible_places) > 1:
            place = visible_places[max(1, len(visible_places) // 2)] + 1
        if 0 < place < len(row):
            row[place - 1] = True
            row[place] &= not row[place:].all()
        elif len(covered_places):
            row[covered_places[len(covered_places) // 2]] = False
    return rows.reshape(hidden.shape)


Agree = Callable[[Inputs], bool]


def agree_with_wider_masks(
    masks: Masks,
    inputs: Inputs,
    agree: Agree,
) -> bool:
    """True where reference and candidate agree once every query sees something, and still do with another place hidden."""
    return any(agree(wider) and agree(another) for wider, another in masks.wider_masks(inputs))


def finding(gaps: Sequence[Gap]) -> Iterator[Finding]:
    """One for all cases in which hidden places differ: how many there are, and how exact everything else is."""
    masked: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        if gap.domain is Domain.MASKED:
            masked.setdefault((gap.backend, gap.output), []).append(gap)
    for (backend, output), own_gaps in masked.items():
        rest = "nothing else was there to compare"
        if any(gap.compared for gap in own_gaps):
            worst = max(gap.noise_ratio for gap in own_gaps)
            rest = f"all else is at most {worst:.1f} times the noise there"
        cases = f"{len(own_gaps)} case{'s' * (len(own_gaps) != 1)}"
        yield Finding(
            code="masked",
            what=f"`{output}` on {backend} differs where a mask hides the place or everything it could see, in {cases}; {rest}",
            help="whoever uses the output must leave those places out, as with PyTorch itself",
        )
