"""Exchanged inputs or outputs: other pairings are tried, and one counts only if the answers are right with it."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from onnxproof.results import Signature

_MOST_TRIALS = 24
"""Pairings that are tried for each side: all orders of 4 ports. Each is a run of the model."""
_MOST_ALIKE = 6
"""Ports of one kind beyond which no order is tried."""


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class PortExchange:
    """A pairing that is right where the signature's is wrong."""

    what: str
    names: tuple[str, ...]
    signature: Signature
    kind: str
    """input or output"""


def find_exchange(
    signature: Signature, is_right: Callable[[Signature], bool]
) -> PortExchange | None:
    """Try every exchange of inputs, then of outputs, that keeps shapes and dtypes."""
    sides: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("input", signature.inputs),
        ("output", signature.outputs),
    )
    for kind, ports in sides:
        for exchanged in itertools.islice(_exchanges(ports), _MOST_TRIALS):
            trial = replace(signature, **{f"{kind}s": exchanged})
            if is_right(trial):
                return _describe(kind, ports, exchanged, trial)
    return None


def _describe(
    kind: str,
    ports: tuple[Any, ...],
    exchanged: tuple[Any, ...],
    signature: Signature,
) -> PortExchange:
    """The exchange in words, and the names that moved."""
    moved = [
        (port.name, other.onnx_name or "")
        for port, other in zip(ports, exchanged, strict=True)
        if port.onnx_name != other.onnx_name
    ]
    pairs = ", ".join(f"`{name}` belongs to the file's `{onnx}`" for name, onnx in moved)
    return PortExchange(
        what=f"the {kind}s are exchanged: {pairs}",
        names=tuple(onnx for _, onnx in moved),
        signature=signature,
        kind=kind,
    )


def _exchanges(ports: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Permutations within each set of ports of one dtype and shape, the identity left out."""
    alike: dict[Any, list[int]] = defaultdict(list)
    for place, port in enumerate(ports):
        if port.onnx_name is not None:
            alike[(port.dtype, port.shape)].append(place)
    for places in alike.values():
        if len(places) > _MOST_ALIKE:
            continue
        for order in itertools.permutations(places):
            if list(order) != places:
                yield _permute(ports, places, order)


def _permute(
    ports: tuple[Any, ...],
    places: list[int],
    order: tuple[int, ...],
) -> tuple[Any, ...]:
    """The ports with their ONNX names in another order."""
    permuted = list(ports)
    for place, source in zip(places, order, strict=True):
        permuted[place] = replace(ports[place], onnx_name=ports[source].onnx_name)
    return tuple(permuted)
