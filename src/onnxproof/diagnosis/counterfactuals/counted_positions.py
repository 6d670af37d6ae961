"""Running sums of integers, changed while a module runs: positions are counted by them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_SUMS = (torch.cumsum, torch.Tensor.cumsum)


class CountOtherwise(TorchFunctionMode):
    """Every running sum of integers gives something else; `changed` says whether there was one."""

    def __init__(self, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self._change = change
        self.changed = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call it, and change what it gives."""
        returned = func(*args, **(kwargs or {}))
        if func in _SUMS and not returned.is_floating_point():
            self.changed = True
            return self._change(returned)
        return returned
