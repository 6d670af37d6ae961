"""Break exact ties by one rule: the counterfactual which shows that a difference is only the order of equals."""

from typing import Any

import torch

from onnxproof.reference.dispatch import Mode, named_arguments

aten = torch.ops.aten


class BreakTies(Mode):
    """Sorts, top-k and arg-max take the first (or the last) of equal values; `seen` says whether any tie was met."""

    def __init__(self, rule: str) -> None:
        super().__init__()
        self._last = rule == "last"
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace the operations that choose among equals."""
        kwargs = kwargs or {}
        bound = named_arguments(func, args, kwargs)
        if func in (aten.sort.default, aten.sort.stable, aten.topk.default):
            return self._sorted(func, bound)
        if func in (aten.argmax.default, aten.argmin.default):
            return self._arg(bound, largest=func is aten.argmax.default)
        if func in (aten.max.dim, aten.min.dim):
            values, indices = func(*args, **kwargs)
            chosen = self._arg(bound, largest=func is aten.max.dim)
            return values, chosen if chosen is not None else indices
        return func(*args, **kwargs)

    def _sorted(self, func: Any, bound: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        x, dim = bound["self"], int(bound["dim"])
        descending = (
            bool(bound["largest"]) if func is aten.topk.default else bool(bound["descending"])
        )
        if x.dim() == 0:
            return x.clone(), torch.zeros((), dtype=torch.int64)
        flipped = x.flip(dim) if self._last else x
        values, indices = torch.sort(flipped, dim=dim, descending=descending, stable=True)
        indices = x.shape[dim] - 1 - indices if self._last else indices
        self.seen |= bool((values.diff(dim=dim) == 0).any())
        if func is aten.topk.default:
            values, indices = values.narrow(dim, 0, bound["k"]), indices.narrow(dim, 0, bound["k"])
        return values, indices

    def _arg(self, bound: dict[str, Any], *, largest: bool) -> torch.Tensor:
        x, dim, keep = bound["self"], bound["dim"], bool(bound["keepdim"])
        flat = x.reshape(-1) if dim is None else x
        axis = 0 if dim is None else int(dim)
        if flat.dim() == 0:
            return torch.zeros((), dtype=torch.int64)
        best = flat.amax(axis, keepdim=True) if largest else flat.amin(axis, keepdim=True)
        equal = flat == best
        self.seen |= bool((equal.sum(axis) > 1).any())
        size = flat.shape[axis]
        places = (
            torch.arange(size)
            .reshape([size if d == axis % flat.dim() else 1 for d in range(flat.dim())])
            .expand(flat.shape)
        )
        chosen = (
            torch.where(equal, places, -1).amax(axis)
            if self._last
            else torch.where(equal, places, size).amin(axis)
        )
        if not keep:
            return chosen
        return chosen.reshape([1] * x.dim()) if dim is None else chosen.unsqueeze(axis)
