"""Names for open dims: batch, sequence, height, width, past; dims that must have the same size share a name."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from onnxproof.exporter.example import Example, Place, Sizes

_PAST = re.compile(r"past|cache|(^|\.)(key|value)s?(\.|$)")
_CHANNELS = (1, 3, 4)
_IMAGE_AXES = {4: {2: "height", 3: "width"}, 5: {2: "depth", 3: "height", 4: "width"}}
"""By the rank of the tensor, with its channels first."""
_PREFERRED = ("batch", "past", "sequence", "height", "width")


class DimNames:
    """Gives each symbol a name: the user's, else one by the position of its dims.

    torch does not always notice that two dims must agree (a mask that is expanded to the batch, for one). If two symbols want
    the same name and have the same size, the eager module is called: if it refuses to change either alone, they share the name.
    """

    def __init__(
        self,
        example: Example,
        user_names: Mapping[Place, str],
        sizes: Sizes | None = None,
    ) -> None:
        self._example = example
        self._user_names = user_names
        self._sizes = dict(sizes or {})
        self._places: dict[str, Sequence[Place]] = {}
        """The dims that have a name, by that name."""
        for name in user_names.values():
            self._places[name] = [place for place, other in user_names.items() if other == name]

    def assign(self, places_by_symbol: Mapping[Any, Sequence[Place]]) -> dict[Any, str]:
        """A name for each symbol; the user's names come first, so that none of ours takes one."""
        names = {symbol: self._user_name(places) for symbol, places in places_by_symbol.items()}
        for symbol, places in places_by_symbol.items():
            if not names[symbol]:
                names[symbol] = self._reserve(self._suggest(places), places)
        return names

    def _user_name(self, places: Sequence[Place]) -> str:
        for place in places:
            if place in self._user_names:
                return self._user_names[place]
        return ""

    def _reserve(
        self,
        name: str,
        places: Sequence[Place],
    ) -> str:
        """The name, shared if its other dims must have the same size, else made unique."""
        if name in self._places and self._must_agree(places, self._places[name]):
            return name
        if name in self._places and places:
            name = f"{_identifier(places[0][0])}_{name}"
        while name in self._places:
            name += "_"
        self._places[name] = places
        return name

    def _must_agree(
        self,
        places: Sequence[Place],
        others: Sequence[Place],
    ) -> bool:
        if not places or not others or self._size(places[0]) != self._size(others[0]):
            return False
        larger = self._size(places[0]) + 1
        if self._accepts(places, larger) and self._accepts(others, larger):
            return False
        return self._accepts([*places, *others], larger)

    def _accepts(
        self,
        places: Sequence[Place],
        size: int,
    ) -> bool:
        return self._example.accepts({**self._sizes, **dict.fromkeys(places, size)})

    def _size(self, place: Place) -> int:
        return self._sizes.get(place, self._example.size(place))

    def _suggest(self, places: Sequence[Place]) -> str:
        """The most specific of the names that its dims suggest: a past is a past in whatever other input its size occurs."""
        suggestions = [self._suggest_for(place) for place in places] or ["size"]
        for name in _PREFERRED:
            if name in suggestions:
                return name
        return suggestions[0]

    def _suggest_for(self, place: Place) -> str:
        """The usual meaning of this axis in a tensor of this rank and type."""
        name, axis = place
        tensor = self._example.tensors[name]
        fallback = f"{_identifier(name)}_{axis}"
        if axis == 0:
            return "batch"
        if _PAST.search(name.lower()) and tensor.dim() == 4 and axis == 2:
            return "past"
        if _may_be_image(tensor):
            return _image_axis(tensor, axis) or fallback
        if axis == 1 and _may_be_sequence(tensor):
            return "sequence"
        if tensor.dim() == 2 or (tensor.dim() == 3 and axis == 2):
            return "length"
        return fallback


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _may_be_image(tensor: torch.Tensor) -> bool:
    is_pixel_type = tensor.is_floating_point() or tensor.dtype == torch.uint8
    return tensor.dim() in _IMAGE_AXES and is_pixel_type


def _image_axis(tensor: torch.Tensor, axis: int) -> str:
    """Height, width or depth; empty for the channels."""
    channels_last = tensor.shape[-1] in _CHANNELS and tensor.shape[1] not in _CHANNELS
    if channels_last:
        axis += 1
    return _IMAGE_AXES[tensor.dim()].get(axis, "")


def _may_be_sequence(tensor: torch.Tensor) -> bool:
    if tensor.dim() == 3 or tensor.dtype == torch.bool:
        return True
    return tensor.dim() == 2 and not tensor.is_floating_point()
