"""Where a mask hides the very place, or everything that a query could see: what is not compared there, and how that is tried.

Nothing defines an attention over no places at all: torch's fused kernel answers zeros, a finite fill value gives the mean,
an exporter something else. So a difference there is a note, but only where it is tried:
1. `excused` says which values of an output are meant; all others must agree as they are.
2. `opened` gives masks in which every query sees something: there the two must agree;
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
    """The masks among the inputs of a reference, each tried once, and only when somebody asks."""

    space: Space
    run: Run

    @cached_property
    def ways(self) -> dict[str, Hides]:
        """How each input hides a place; one that was not shown to hide anything is left out."""
        slots = [slot for slot in self.space.slots if slot.role is Role.MASK or slot.additive]
        tried = {slot.name: how_it_hides(self.space, slot, self.run) for slot in slots}
        return {name: how for name, how in tried.items() if how is not None}

    def hidden(self, inputs: Inputs) -> dict[str, Array]:
        """The hidden places of every mask that hides any."""
        found = {name: hidden_places(inputs[name], how) for name, how in self.ways.items()}
        return {name: places for name, places in found.items() if places.any()}

    def excused(self, inputs: Inputs, sizes: Mapping[str, int], shape: Sequence[int]) -> Array:
        """The values of an output of that shape which belong to a hidden place, or to a query that sees nothing."""
        region = np.zeros(tuple(shape), bool)
        for name, hidden in self.hidden(inputs).items():
            region |= _of_nothing(hidden, region.shape)
            if hidden.ndim == 2:
                region |= _of_places(hidden, region.shape, self._ends(name, sizes))
        return region

    def opened(self, inputs: Inputs) -> Iterator[tuple[Inputs, Inputs]]:
        """Inputs whose masks leave every query something to see, and the same with another place hidden in each row.

        One place is enough, the first, unless a query sees only its neighbourhood: then every other place.
        """
        for places in (_first, _every_other):
            wider = {name: hidden & ~places(hidden) for name, hidden in self.hidden(inputs).items()}
            if all((wider[name] == hidden).all() for name, hidden in self.hidden(inputs).items()):
                continue
            other = {name: _another(hidden) for name, hidden in wider.items()}
            yield self._with(inputs, wider), self._with(inputs, other)

    def _with(self, inputs: Inputs, hidden: Mapping[str, Array]) -> Inputs:
        return {
            **inputs,
            **{
                name: with_hidden(inputs[name], self.ways[name], places)
                for name, places in hidden.items()
            },
        }

    def _ends(self, name: str, sizes: Mapping[str, int]) -> set[int]:
        """Sizes of what a longer mask ends with: it covers a cache, too, and the output is of the new places alone."""
        dim = next(info.dims[-1] for info in self.space.signature.inputs if info.name == name)
        parts = self.space.relations.get(str(dim), "").split()
        return {sizes[part] for part in parts if part in sizes} if "+" in parts else set()


def _of_nothing(hidden: Array, shape: tuple[int, ...]) -> Array:
    """Where a row of the mask hides everything: all of that row of the batch, or all there is where the mask has no batch.

    A query that sees nothing may itself be seen by others in the next layer, so that its whole row of the batch is meant.
    """
    region = np.zeros(shape, bool)
    rows = hidden.all(-1)
    batch = hidden.shape[0] if hidden.ndim > 1 else 1
    axis = next((axis for axis, size in enumerate(shape) if size == batch), None)
    if axis is None or hidden.ndim == 1:
        region[...] = bool(rows.any())
        return region
    blank = rows.reshape(batch, -1).any(1)
    region |= blank.reshape([batch if a == axis else 1 for a in range(len(shape))])
    return region


def _of_places(hidden: Array, shape: tuple[int, ...], ends: set[int]) -> Array:
    """What an output says of the hidden places, where it has the axes of the mask."""
    batch, width = hidden.shape
    region = np.zeros(shape, bool)
    if not shape or shape[0] != batch:
        return region
    axis = next((axis for axis, size in enumerate(shape) if axis and size == width), None)
    if axis is None and len(shape) > 1 and shape[1] in ends and shape[1] < width:
        axis, hidden = 1, hidden[:, width - shape[1] :]
    if axis is not None:
        region |= hidden.reshape(
            [batch if a == 0 else hidden.shape[1] if a == axis else 1 for a in range(len(shape))]
        )
    return region


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


def _another(hidden: Array) -> Array:
    """One more place hidden in each row, or, where a row has a single visible place, one more opened."""
    rows = hidden.reshape(-1, hidden.shape[-1]).copy()
    for row in rows:
        visible, covered = np.flatnonzero(~row), np.flatnonzero(row)
        if len(visible) > 1:
            row[visible[max(1, len(visible) // 2)]] = True
        elif len(covered):
            row[covered[len(covered) // 2]] = False
    return rows.reshape(hidden.shape)


Agree = Callable[[Inputs], bool]


def agree_when_opened(masks: Masks, inputs: Inputs, agree: Agree) -> bool:
    """True where the two agree once every query sees something, and still do with another place hidden."""
    return any(agree(opened) and agree(another) for opened, another in masks.opened(inputs))


def finding(gaps: Sequence[Gap]) -> Iterator[Finding]:
    """One for all cases in which hidden places differ: how many there are, and how exact everything else is."""
    for backend, output in dict.fromkeys(
        (gap.backend, gap.output) for gap in gaps if gap.domain is Domain.MASKED
    ):
        mine = [
            gap
            for gap in gaps
            if gap.domain is Domain.MASKED and (gap.backend, gap.output) == (backend, output)
        ]
        most = max(gap.noise_ratio for gap in mine)
        rest = (
            f"all else is at most {most:.1f} times the noise there"
            if any(gap.compared for gap in mine)
            else "nothing else was there to compare"
        )
        yield Finding(
            code="masked",
            what=f"`{output}` on {backend} differs where a mask hides the place or everything it could see, in {len(mine)} case{'s' * (len(mine) != 1)}; {rest}",
            help="whoever uses the output must leave those places out, as with PyTorch itself",
        )
