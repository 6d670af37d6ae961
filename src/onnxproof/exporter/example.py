"""The example inputs by leaf, and the same inputs at other sizes."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from onnxproof.reference.subject import Subject
from onnxproof.reference.torch_session import TorchSession

Place = tuple[str, int]
"""One dim: the leaf's name and the axis."""
Sizes = Mapping[Place, int]
_LARGER = 3
"""Not 2: code that compares a size compares it with 1 or 2."""


class Example:
    """A subject's example inputs: its tensors by name, their sizes, and calls of the eager module."""

    def __init__(self, found: Subject) -> None:
        self.session = TorchSession(found.module, found.args, found.kwargs)
        self.tensors: dict[str, torch.Tensor] = self.session.example

    def places(self) -> list[Place]:
        """Every dim of every input."""
        return [
            (name, axis) for name, tensor in self.tensors.items() for axis in range(tensor.dim())
        ]

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
        """True when the eager module takes the example at these sizes."""
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


def _resize(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    old = tensor.shape[axis]
    if old == 0:
        return tensor.new_zeros((*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]))
    return tensor.index_select(axis, torch.arange(size) % old)


def enlarge_ones(example: Example, frozen: Iterable[Place], *, most: int = 8) -> dict[Place, int]:
    """Sizes above 1 for dims that are 0 or 1 in the example, where the module takes them.

    Tracing specialises on 0 and 1: a dim of that size can't be told from one that is broadcast. Leading dims move together
    first, since they are mostly one batch; the others one by one.
    """
    kept = set(frozen)
    small = [place for place in example.places() if example.size(place) < 2 and place not in kept]
    leading = [place for place in small if place[1] == 0]
    found: dict[Place, int] = {}
    groups = [leading] if leading else []
    groups += [[place] for place in small if place not in leading][:most]
    for group in groups:
        trial = {**found, **dict.fromkeys(group, _LARGER)}
        if example.accepts(trial):
            found = trial
        elif len(group) > 1:
            for place in group:
                alone = {**found, place: _LARGER}
                found = alone if example.accepts(alone) else found
    return found
