"""The example inputs by leaf, and the same inputs at other sizes."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from onnxproof.reference.subject import Subject
from onnxproof.reference.torch_session import TorchSession

Place = tuple[str, int]
"""One dim: the leaf's name and the axis."""
Sizes = Mapping[Place, int]
_ENLARGED = 3
"""Not 2: code that compares a size compares it with 1 or 2."""


class Example:
    """A subject's example inputs: its tensors by name, their sizes, and calls of the eager module."""

    def __init__(self, subject: Subject) -> None:
        self.session = TorchSession(subject.module, subject.args, subject.kwargs)
        self.tensors: dict[str, torch.Tensor] = self.session.example

    def places(self) -> list[Place]:
        """Every dim of every input."""
        places = []
        for name, tensor in self.tensors.items():
            places += [(name, axis) for axis in range(tensor.dim())]
        return places

    def size(self, place: Place) -> int:
        """The example's own size of a dim."""
        return int(self.tensors[place[0]].shape[place[1]])

    def resized(self, sizes: Sizes) -> dict[str, torch.Tensor]:
        """The tensors with some dims at another size; values are repeated, so ids and masks stay valid."""
        changed = dict(self.tensors)
        for (name, axis), size in sizes.items():
            changed[name] = _resize(changed[name], axis, size)
        return {name: tensor.clone() for name, tensor in changed.items()}

    def accepts(self, sizes: Sizes) -> bool:
        """True if the eager module accepts the example at these sizes."""
        try:
            self.call(sizes)
        except Exception:  # the user's own module: any refusal is an answer
            return False
        return True

    def call(self, sizes: Sizes) -> list[tuple[str, torch.Tensor]]:
        """The eager module's named outputs at these sizes."""
        return self.session.call(self.resized(sizes))

    def arguments(self, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments at these sizes."""
        return self.session.arguments(self.resized(sizes))


def _resize(
    tensor: torch.Tensor,
    axis: int,
    size: int,
) -> torch.Tensor:
    old = tensor.shape[axis]
    if old == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    return tensor.index_select(axis, torch.arange(size) % old)


def enlarge_ones(
    example: Example,
    fixed: Collection[Place],
    *,
    max_single: int = 8,
) -> dict[Place, int]:
    """Sizes above 1 for dims that are 0 or 1 in the example, where the module accepts them.

    Tracing specialises on 0 and 1: a dim of that size can't be distinguished from one that is broadcast.
    1. Leading dims are enlarged together, since they are mostly one batch.
    2. If the module refuses that, each of them alone.
    3. The other dims one by one, at most `max_single` of them (not measured).
    """
    small = [place for place in example.places() if example.size(place) < 2]
    enlargeable = [place for place in small if place not in fixed]
    leading = [place for place in enlargeable if place[1] == 0]
    others = [place for place in enlargeable if place[1] != 0]
    sizes = _enlarge_if_accepted(example, {}, leading)  # step 1
    singles = others[:max_single]  # step 3
    if not sizes and len(leading) > 1:
        singles = [*leading, *singles]  # step 2
    for place in singles:
        sizes = _enlarge_if_accepted(example, sizes, [place])
    return sizes


def _enlarge_if_accepted(
    example: Example,
    sizes: dict[Place, int],
    places: Sequence[Place],
) -> dict[Place, int]:
    larger = {**sizes, **dict.fromkeys(places, _ENLARGED)}
    if places and example.accepts(larger):
        return larger
    return sizes
