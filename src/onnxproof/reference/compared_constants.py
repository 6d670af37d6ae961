"""The numbers that a module compares values with, read from one of its runs: a file that lost such a comparison does not hold them."""

import math
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from onnxproof.reference.dispatch import Mode, named_arguments

_COMPARES = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "hardtanh"}
    | {"threshold", "isin", "bucketize", "searchsorted"}
)
_OPERANDS = ("other", "min", "max", "min_val", "max_val", "threshold")
_TABLES = ("test_elements", "boundaries", "sorted_sequence")
_MOST_ELEMENTS = 64
"""Elements of a table that may be thresholds. Not measured."""
_MOST_NUMBERS = 256
"""Numbers that are kept. Not measured."""


class ComparedConstants(Mode):
    """Watches a run, and changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[float, None] = {}

    @property
    def numbers(self) -> tuple[float, ...]:
        """Every finite number that was compared with, once."""
        return tuple(self._numbers)[:_MOST_NUMBERS]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Note the operands of a comparison, then run."""
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        if name in _COMPARES and len(self._numbers) < _MOST_NUMBERS:
            numbers = _operands(named_arguments(func, args, kwargs))
            self._numbers.update(dict.fromkeys(numbers))
        return func(*args, **(kwargs or {}))


def _operands(arguments: dict[str, Any]) -> Iterator[float]:
    """Single numbers, and the tables of those operators that have one: any other tensor may be data."""
    for name, value in arguments.items():
        if isinstance(value, Tensor) and not value.is_complex():
            most = _MOST_ELEMENTS if name in _TABLES else int(name in _OPERANDS)
            if value.numel() <= most:
                yield from filter(math.isfinite, value.reshape(-1).double().tolist())
        elif isinstance(value, int | float) and name in _OPERANDS and math.isfinite(value):
            yield float(value)
