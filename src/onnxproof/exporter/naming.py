"""Names for dims that vary: batch, sequence, height, width, past; one name where sizes move together."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onnxproof.exporter.example import Example, Place, Sizes

_PAST = re.compile(r"past|cache|(^|\.)(key|value)s?(\.|$)")
_CHANNELS = (1, 3, 4)
_IMAGES = {4: {2: "height", 3: "width"}, 5: {2: "depth", 3: "height", 4: "width"}}


class Names:
    """Gives each symbol a name: the user's, else what the place of its dims suggests.

    torch does not always see that two dims must agree (a mask that is expanded to the batch, for one). Where two symbols ask
    for one name and have one size, the eager module is asked: if it refuses to move either alone, they share the name.
    """

    def __init__(
        self, example: Example, given: Mapping[Place, str], sizes: Sizes | None = None
    ) -> None:
        self._example, self._given, self._sizes = example, given, dict(sizes or {})
        self._taken: dict[str, Sequence[Place]] = {
            name: [place for place, mine in given.items() if mine == name]
            for name in given.values()
        }

    def of(self, roots: Mapping[Any, Sequence[Place]]) -> dict[Any, str]:
        """A name for each symbol; the user's names are given out first, so that none of ours takes one."""
        found = {symbol: self._users(places) for symbol, places in roots.items()}
        for symbol, places in roots.items():
            if not found[symbol]:
                found[symbol] = self._free(self._suggest(places), places)
        return found

    def _users(self, places: Sequence[Place]) -> str:
        return next((self._given[place] for place in places if place in self._given), "")

    def _free(self, name: str, places: Sequence[Place]) -> str:
        if name in self._taken and self._moves_with(places, self._taken[name]):
            return name
        if name in self._taken and places:
            name = f"{places[0][0].replace('.', '_')}_{name}"
        while name in self._taken:
            name += "_"
        self._taken[name] = places
        return name

    def _moves_with(self, places: Sequence[Place], others: Sequence[Place]) -> bool:
        if not places or not others or self._size(places[0]) != self._size(others[0]):
            return False
        larger = self._size(places[0]) + 1
        alone = all(
            self._example.accepts({**self._sizes, **dict.fromkeys(some, larger)})
            for some in (places, others)
        )
        return not alone and self._example.accepts(
            {**self._sizes, **dict.fromkeys([*places, *others], larger)}
        )

    def _size(self, place: Place) -> int:
        return self._sizes.get(place, self._example.size(place))

    def _suggest(self, places: Sequence[Place]) -> str:
        """The most telling of what its places suggest: a past is a past wherever else its size turns up."""
        words = [self._place(place) for place in places] or ["size"]
        for word in ("batch", "past", "sequence", "height", "width"):
            if word in words:
                return word
        return words[0]

    def _place(self, place: Place) -> str:
        name, axis = place
        tensor = self._example.tensors[name]
        if axis == 0:
            return "batch"
        if _PAST.search(name.lower()) and tensor.dim() == 4 and axis == 2:
            return "past"
        if tensor.dim() in _IMAGES and (tensor.is_floating_point() or tensor.dtype == torch.uint8):
            last = tensor.shape[-1] in _CHANNELS and tensor.shape[1] not in _CHANNELS
            return _IMAGES[tensor.dim()].get(axis + last, f"{name.replace('.', '_')}_{axis}")
        if axis == 1 and (
            (tensor.dim() == 2 and not tensor.is_floating_point())
            or tensor.dim() == 3
            or tensor.dtype == torch.bool
        ):
            return "sequence"
        if tensor.dim() == 3 and axis == 2:
            return "length"
        return "length" if tensor.dim() == 2 else f"{name.replace('.', '_')}_{axis}"
