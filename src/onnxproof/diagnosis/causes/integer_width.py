"""Integers pass through a type that does not hold them.

What it is: int64 that wraps in int32, 8-bit arithmetic that overflows, integers counted in floats beyond 2**24 or
2**53, an integer type where the module has a fraction.

Why it happens: runtimes without int64, kernels that accumulate in float, exporters that give both operands the first
one's type.

How to see it: the module's own operation, done in the narrower type, gives what the candidate gives.

How to fix it: keep the values small, cast by hand where the width matters, or take another runtime.

Example: a hash of two ids, multiplied in int32.
"""

from collections.abc import Iterator
from typing import Any

import torch

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Arguments,
    Change,
    Keywords,
    Variant,
)
from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.reference.traced_value import TracedValue

TITLE = "integers pass through a type that does not hold them"
PRICE = 17


def test(workbench: Workbench) -> Tried | str:
    """The module's own integer operations in narrower types."""
    return workbench.try_in_reference(_variants)


def _variants(entry: TracedValue) -> Iterator[Variant]:
    if "int" in entry.dtype:
        dtypes = (
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.float32,
            torch.float64,
        )
        for dtype in dtypes:
            name = str(dtype).removeprefix("torch.")
            if name != entry.dtype:
                yield Variant(what=f"done in {name}", change=_compute_in(dtype))
                yield Variant(
                    what=f"with its result cast to {name}", change=_cast_there_and_back(dtype)
                )
                yield Variant(what=f"left in {name}", change=_cast(dtype))
    if entry.op in ("pow", "div", "mul", "true_divide", "mean"):
        yield Variant(
            what="with its operands cut to integers",
            change=_compute_in(torch.int64, fractions=True),
        )
        yield Variant(
            what="with its result cut to integers",
            change=lambda func, args, kwargs: torch.trunc(func(*args, **kwargs)),
        )


def _compute_in(dtype: torch.dtype, *, fractions: bool = False) -> Change:
    """The call with its integers (and, if asked, its fractions) in another type, and the result in its own."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        wanted = func(*args, **kwargs)
        narrow = list(args)
        for place, argument in enumerate(args):
            if _is_cast(argument, fractions):
                narrow[place] = argument.to(dtype)
        return func(*narrow, **kwargs).to(wanted.dtype)

    return change


def _is_cast(argument: Any, fractions: bool) -> bool:
    """True for tensors of integers, and for all others if fractions are cast, too."""
    if not isinstance(argument, torch.Tensor):
        return False
    return fractions or not (argument.is_floating_point() or argument.dtype == torch.bool)


def _cast(dtype: torch.dtype) -> Change:
    return lambda func, args, kwargs: func(*args, **kwargs).to(dtype)


def _cast_there_and_back(dtype: torch.dtype) -> Change:
    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        result = func(*args, **kwargs)
        return result.to(dtype).to(result.dtype)

    return change
