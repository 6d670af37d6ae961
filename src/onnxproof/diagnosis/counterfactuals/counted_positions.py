"""Counts of places, changed while a module runs: running sums of a mask, and ranges that begin where the past ends."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Change = Callable[[Any, int], Any]
"""Gets a count and where it begins (0 of a running sum), and gives another count."""
_SUMS = (torch.cumsum, torch.Tensor.cumsum)
_ADDITIONS = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
_VIEWS = (torch.Tensor.__getitem__, torch.unsqueeze, torch.Tensor.unsqueeze)
_WRAPS = (torch.remainder, torch.Tensor.remainder, torch.Tensor.__mod__)
_CLAMPS = (torch.clamp, torch.Tensor.clamp)


class CountOtherwise(TorchFunctionMode):
    """Every count, or the one that comes as `only`-th, gives something else; `changed` says whether there was one."""

    def __init__(self, change: Change, only: int | None = None) -> None:
        super().__init__()
        self._change, self._only = change, only
        self._ranges: list[Any] = []
        """Ranges from 0, and views of them: kept, so that no other tensor takes their place in memory."""
        self.seen = 0
        self.changed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it, and change what it gives where that is a count."""
        returned = func(*args, **(kwargs or {}))
        start = self._start_of_count(func, args, returned)
        if start is None:
            return returned
        self.seen += 1
        if self._only not in (None, self.seen - 1):
            return returned
        self.changed = True
        return self._change(returned, start)

    def _start_of_count(self, func: Any, args: tuple[Any, ...], returned: Any) -> int | None:
        """Where a count begins; None for what is none."""
        if func in _SUMS and not returned.is_floating_point():
            return 0
        if func is torch.arange and not returned.is_floating_point():
            if returned.numel() and int(returned[0]):
                return int(returned[0])
            self._ranges.append(returned)
        elif func in _VIEWS and self._is_range(args[0]):
            self._ranges.append(returned)
        elif func in _ADDITIONS and len(args) == 2:
            return self._offset_of_range(args)
        return None

    def _offset_of_range(self, terms: tuple[Any, ...]) -> int | None:
        """The number that is added to a range; None where it is no such sum."""
        offset = next((term for term in terms if isinstance(term, int)), None)
        if offset is None or not any(self._is_range(term) for term in terms):
            return None
        return int(offset)

    def _is_range(self, value: Any) -> bool:
        return any(value is known for known in self._ranges)


class EndOtherwise(TorchFunctionMode):
    """A count that begins anew at the end of a table stands still there, and the reverse; `others` are inputs that count nothing, such as tokens."""

    def __init__(self, others: Sequence[Any] = ()) -> None:
        super().__init__()
        self._others = [torch.from_numpy(other) for other in others]
        self.changed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it, or what is to be in its place."""
        given = kwargs or {}
        if func in _WRAPS and self._may_count(args[0]) and isinstance(args[1], int):
            self.changed = True
            return args[0].clamp(max=args[1] - 1)
        most = given.get("max", args[2] if len(args) > 2 else None)
        if func in _CLAMPS and self._may_count(args[0]) and isinstance(most, int):
            self.changed = True
            return args[0].remainder(most + 1)
        return func(*args, **given)

    def _may_count(self, value: Any) -> bool:
        return _is_whole(value) and not any(_holds(value, other) for other in self._others)


def _holds(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a tensor has the numbers of another one, in any shape."""
    return torch.equal(value.reshape(-1).cpu().long(), other.reshape(-1).long())


def _is_whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point()
