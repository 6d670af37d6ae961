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
from typing import TYPE_CHECKING, Any

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench

if TYPE_CHECKING:
    from onnxproof.diagnosis.counterfactuals.changed_reference import Change, Variant
    from onnxproof.reference.traced_value import TracedValue

TITLE = "integers pass through a type that does not hold them"
PRICE = 17


def test(bench: Workbench) -> Tried | str:
    """The module's own integer operations in narrower types."""
    return bench.whatif(_variants)


def _variants(entry: "TracedValue") -> "Iterator[Variant]":
    import torch

    from onnxproof.diagnosis.counterfactuals.changed_reference import Variant

    def through(dtype: torch.dtype, floats: bool = False) -> Any:
        def change(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            wanted = func(*args, **kwargs)
            small = [
                a.to(dtype)
                if isinstance(a, torch.Tensor)
                and (floats or not (a.is_floating_point() or a.dtype == torch.bool))
                else a
                for a in args
            ]
            return func(*small, **kwargs).to(wanted.dtype)

        return change

    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8, torch.float32, torch.float64):
        if "int" in entry.dtype and str(dtype) != f"torch.{entry.dtype}":
            yield Variant(
                what=f"done in {str(dtype).removeprefix('torch.')}", change=through(dtype)
            )
            yield Variant(
                what=f"with its result cast to {str(dtype).removeprefix('torch.')}",
                change=_cast(dtype),
            )
            yield Variant(
                what=f"left in {str(dtype).removeprefix('torch.')}",
                change=lambda func, args, kwargs, d=dtype: func(*args, **kwargs).to(d),  # type: ignore[misc]
            )
    if entry.op in ("pow", "div", "mul", "true_divide", "mean"):
        yield Variant(
            what="with its operands cut to integers", change=through(torch.int64, floats=True)
        )
        yield Variant(
            what="with its result cut to integers",
            change=lambda func, args, kwargs: torch.trunc(func(*args, **kwargs)),
        )


def _cast(dtype: Any) -> "Change":
    def change(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        return result.to(dtype).to(result.dtype)

    return change
