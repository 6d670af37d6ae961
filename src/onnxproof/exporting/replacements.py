"""Operators that torch.onnx can't translate, written in terms of those that it can.

A replacement is a torch function that takes the operator's own arguments, so it can be tried against the operator itself in
eager mode. Another package adds one by an entry point of the group `onnxproof.replacements`, named like `aten.median.dim`.
"""


from collections.abc import Callable
from typing import Any

import torch

from onnxproof import outsiders

ENTRY_POINTS = "onnxproof.replacements"
Tensor = torch.Tensor
aten = torch.ops.aten


def rsub(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """`1.0 - ids`: the integers become the type of the result first."""
    dtype = torch.result_type(x, other)
    return x.to(dtype).mul(-alpha).add(other)


def searchsorted(ordered: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False, side: str | None = None, sorter: Tensor | None = None) -> Tensor:
    """The number of entries below each value."""
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    rows = ordered.unsqueeze(-2) if ordered.dim() > 1 else ordered
    below = rows <= values.unsqueeze(-1) if right or side == "right" else rows < values.unsqueeze(-1)
    found = below.sum(-1)
    return found.to(torch.int32) if out_int32 else found


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th of the sorted values."""
    values, places = torch.sort(x, dim)
    value, place = values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1)
    return (value, place) if keepdim else (value.squeeze(dim), place.squeeze(dim))


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two middle values."""
    return kthvalue(x, (x.shape[dim] - 1) // 2 + 1, dim, keepdim)


def median_of_all(x: Tensor) -> Tensor:
    """The same over all elements."""
    return median(x.reshape(-1), 0)[0]


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The largest so far, and where: every place against every earlier one."""
    moved = x.movedim(dim, -1)
    steps = torch.arange(moved.shape[-1], device=x.device)
    earlier = steps.unsqueeze(0) <= steps.unsqueeze(1)
    values = torch.where(earlier, moved.unsqueeze(-2), torch.full((), _least(x.dtype), dtype=x.dtype, device=x.device)).amax(-1)
    last = torch.where(earlier & (moved.unsqueeze(-2) == values.unsqueeze(-1)), steps, torch.full_like(steps, -1)).amax(-1)
    return values.movedim(-1, dim), last.movedim(-1, dim)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The smallest so far, and where."""
    values, places = cummax(-x, dim)
    return -values, places


def _least(dtype: torch.dtype) -> float:
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


OURS: dict[Any, Callable[..., Any]] = {
    aten.rsub.Scalar: rsub, aten.rsub.Tensor: rsub, aten.searchsorted.Tensor: searchsorted,
    aten.kthvalue.default: kthvalue, aten.median.dim: median, aten.median.default: median_of_all, aten.cummax.default: cummax, aten.cummin.default: cummin,
}


def table() -> dict[Any, Callable[..., Any]]:
    """Ours and those of other packages."""
    found = dict(OURS)
    for point in outsiders.points(ENTRY_POINTS):
        namespace, name, overload = point.name.split(".")
        found[getattr(getattr(getattr(torch.ops, namespace), name), overload)] = point.load()
    return found


def translations() -> dict[Any, Any]:
    """For what is not an operator of torch's and stands in the graph all the same: Python's own `round` of a tensor's value."""
    from onnxscript import opset18 as op

    def half_to_even(x: Any, digits: Any = None) -> Any:
        return op.Cast(op.Round(x), to=7)

    return {round: half_to_even}
