"""Break exact ties by one rule: the counterfactual which shows that a difference is only the order of equals."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from onnxproof.reference.dispatch import Mode, named_arguments

aten = torch.ops.aten
_SORTING = (aten.sort.default, aten.sort.stable, aten.topk.default)
_ARG = (aten.argmax.default, aten.argmin.default)
_EXTREMES = (aten.max.dim, aten.min.dim)
_CHOOSING = (*_SORTING, *_ARG, *_EXTREMES)


class BreakTies(Mode):
    """Sorts, top-k and arg-max take the first (or the last) of equal values; `seen` says whether any tie was met, `choices` what was taken."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self._last = rule == "last"
        self.seen = False
        self.choices: list[Tensor] = []

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Replace the operations that choose among equals."""
        kwargs = kwargs or {}
        if func not in _CHOOSING:
            return func(*args, **kwargs)
        bound = named_arguments(func, args, kwargs)
        if func in _SORTING:
            values, indices = self._sort(func, bound)
            self.choices.append(indices)
            return values, indices
        indices = self._arg(bound, largest=func in (aten.argmax.default, aten.max.dim))
        self.choices.append(indices)
        if func in _ARG:
            return indices
        values, _indices = func(*args, **kwargs)
        return values, indices

    def _sort(self, func: Any, bound: dict[str, Any]) -> tuple[Tensor, Tensor]:
        x, dim = bound["self"], int(bound["dim"])
        is_topk = func is aten.topk.default
        descending = bool(bound["largest" if is_topk else "descending"])
        if x.dim() == 0:
            return x.clone(), torch.zeros((), dtype=torch.int64)
        if self._last:
            values, indices = torch.sort(x.flip(dim), dim=dim, descending=descending, stable=True)
            indices = x.shape[dim] - 1 - indices
        else:
            values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
        self.seen |= bool((values.diff(dim=dim) == 0).any())
        if is_topk:
            count = bound["k"]
            return values.narrow(dim, 0, count), indices.narrow(dim, 0, count)
        return values, indices

    def _arg(self, bound: dict[str, Any], *, largest: bool) -> Tensor:
        """The index of the largest or smallest value along `dim`; over all values where it is None."""
        x, dim, keep = bound["self"], bound["dim"], bool(bound["keepdim"])
        flat, axis = x, 0
        if dim is None:
            flat = x.reshape(-1)
        else:
            axis = int(dim)
        if flat.dim() == 0:
            return torch.zeros((), dtype=torch.int64)
        chosen = self._first_or_last(flat, axis, largest=largest)
        if not keep:
            return chosen
        if dim is None:
            return chosen.reshape([1] * x.dim())
        return chosen.unsqueeze(axis)

    def _first_or_last(
        self,
        x: Tensor,
        axis: int,
        *,
        largest: bool,
    ) -> Tensor:
        best = x.amax(axis, keepdim=True) if largest else x.amin(axis, keepdim=True)
        equal = x == best
        self.seen |= bool((equal.sum(axis) > 1).any())
        size = x.shape[axis]
        shape = [1] * x.dim()
        shape[axis] = size
        places = torch.arange(size).reshape(shape).expand(x.shape)
        if self._last:
            return torch.where(equal, places, -1).amax(axis)
        return torch.where(equal, places, size).amin(axis)


class FollowChoices(Mode):
    """Sorts, top-k and arg-max choose what another run chose, in the same order of calls.

    What is tied in float32 is hardly ever tied in float64: a truth that chose by itself would be the truth of another path.
    """

    def __init__(self, choices: Sequence[Tensor]) -> None:
        super().__init__()
        self._choices = iter(choices)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Replace the indices of an operation that chooses, and its values by those at the indices."""
        kwargs = kwargs or {}
        if func not in _CHOOSING:
            return func(*args, **kwargs)
        bound = named_arguments(func, args, kwargs)
        indices = next(self._choices, None)
        if indices is None:
            raise RuntimeError("this run chooses more often than the one that it follows")
        if func in _ARG:
            return indices
        x, dim = bound["self"], int(bound["dim"])
        if x.dim() == 0:
            return x.clone(), indices
        if func in _EXTREMES and not bound["keepdim"]:
            return x.gather(dim, indices.unsqueeze(dim)).squeeze(dim), indices
        return x.gather(dim, indices), indices
