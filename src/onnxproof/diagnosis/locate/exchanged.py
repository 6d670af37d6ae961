"""Inputs or outputs that were exchanged: another pairing is tried, and counts only if the answers come right by it."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from onnxproof.results import Signature

_MOST = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """A pairing that is right where the given one is wrong."""

    what: str
    names: tuple[str, ...]
    signature: Signature
    kind: str
    """input or output"""


def find(given: Signature, right: Callable[[Signature], bool]) -> Exchanged | None:
    """Try every exchange of inputs, then of outputs, that keeps shapes and dtypes."""
    sides: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("input", given.inputs),
        ("output", given.outputs),
    )
    for kind, ports in sides:
        for trial in itertools.islice(_exchanges(ports), _MOST):
            signature = replace(given, **{f"{kind}s": trial})
            if right(signature):
                moved = [
                    (a.name, b.onnx_name or "")
                    for a, b in zip(ports, trial, strict=True)
                    if a.onnx_name != b.onnx_name
                ]
                return Exchanged(
                    what=f"the {kind}s are exchanged: "
                    + ", ".join(f"`{name}` belongs to the file's `{onnx}`" for name, onnx in moved),
                    names=tuple(onnx for _, onnx in moved),
                    signature=signature,
                    kind=kind,
                )
    return None


def _exchanges(ports: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Permutations within each set of ports that could stand for each other, the identity left out."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for place, port in enumerate(ports):
        if port.onnx_name is not None:
            alike[(port.dtype, port.shape)].append(place)
    for places in alike.values():
        for order in itertools.permutations(places):
            if list(order) != places and len(places) <= 6:
                trial = list(ports)
                for place, source in zip(places, order, strict=True):
                    trial[place] = replace(ports[place], onnx_name=ports[source].onnx_name)
                yield tuple(trial)
