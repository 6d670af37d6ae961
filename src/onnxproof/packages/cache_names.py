"""The names that files give their caches: `past_key_values.0.decoder.key`, `present.0.key`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_CACHE = re.compile(
    r"(past|present)[a-z_]*[._](\d+)[._](?:(decoder|encoder|self|cross)[._])?(key|value)s?"
)
_CROSS = ("encoder", "cross")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class CachePlace:
    """Which tensor of a cache: of which layer, of the tokens or of the encoder's output, keys or values."""

    layer: int
    cross: bool = False
    """Of the attention to the encoder's output."""
    values: bool = False


def cache_place(name: str) -> CachePlace | None:
    """The tensor that a name means; None for a name that is no cache's.

    >>> cache_place("past_key_values.3.encoder.value")
    CachePlace(layer=3, cross=True, values=True)
    >>> cache_place("input_ids") is None
    True
    """
    match = _CACHE.fullmatch(name)
    if match is None:
        return None
    _, layer, side, kind = match.groups()
    return CachePlace(layer=int(layer), cross=side in _CROSS, values=kind == "value")


def cache_places(names: Iterable[str]) -> dict[str, CachePlace]:
    """The names among these that are a cache's, each with its place."""
    places = {name: cache_place(name) for name in names}
    return {name: place for name, place in places.items() if place is not None}


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by dotted names as nested dicts, the form in which a module takes and returns them.

    >>> nest({"logits": 1, "present.0.key": 2, "present.0.value": 3})
    {'logits': 1, 'present': {'0': {'key': 2, 'value': 3}}}
    """
    tree: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        branch = tree
        for word in path:
            branch = branch.setdefault(word, {})
        branch[last] = value
    return tree
