"""Operators that torch.onnx can't translate, written in terms of those that it can.

A replacement is a torch function that takes the operator's own arguments, so it can be tried against the operator itself in
eager mode. Another package adds one by an entry point of the group `onnxproof.replacements`, named like `aten.median.dim`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from onnxproof import registry

ENTRY_POINTS = "onnxproof.replacements"
Tensor = torch.Tensor
aten = torch.ops.aten


def rsub(x: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    """`1.0 - ids`: the integers become the type of the result first."""
    dtype = torch.result_type(x, other)
    return x.to(dtype).mul(-alpha).add(other)


def searchsorted(
    ordered: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The number of entries below each value."""
    if sorter is not None:
        ordered = ordered.gather(-1, sorter)
    rows = ordered.unsqueeze(-2) if ordered.dim() > 1 else ordered
    below = (
        rows <= values.unsqueeze(-1) if right or side == "right" else rows < values.unsqueeze(-1)
    )
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
    values = torch.where(
        earlier,
        moved.unsqueeze(-2),
        torch.full((), _least(x.dtype), dtype=x.dtype, device=x.device),
    ).amax(-1)
    last = torch.where(
        earlier & (moved.unsqueeze(-2) == values.unsqueeze(-1)), steps, torch.full_like(steps, -1)
    ).amax(-1)
    return values.movedim(-1, dim), last.movedim(-1, dim)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The smallest so far, and where."""
    values, places = cummax(-x, dim)
    return -values, places


def cdist(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """The distance of every row of one to every row of the other, from their differences."""
    gaps = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (gaps != 0).to(x.dtype).sum(-1)
    if p == 2:
        return gaps.square().sum(-1).sqrt()
    return gaps.amax(-1) if p == float("inf") else gaps.pow(p).sum(-1).pow(1 / p)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """The larger times the root of one and a square of at most one: squares alone would overflow."""
    large, small = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    share = small / torch.where(large == 0, torch.ones_like(large), large)
    return large * torch.sqrt(1 + share * share)


def _least(dtype: torch.dtype) -> float:
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


OURS: dict[Any, Callable[..., Any]] = {
    aten.rsub.Scalar: rsub,
    aten.rsub.Tensor: rsub,
    aten.searchsorted.Tensor: searchsorted,
    aten.kthvalue.default: kthvalue,
    aten.median.dim: median,
    aten.median.default: median_of_all,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.cdist.default: cdist,
    aten.hypot.default: hypot,
}


def table() -> dict[Any, Callable[..., Any]]:
    """Ours and those of other packages."""
    found = dict(OURS)
    for point in registry.points(ENTRY_POINTS):
        namespace, name, overload = point.name.split(".")
        found[getattr(getattr(getattr(torch.ops, namespace), name), overload)] = point.load()
    return found


def lacking(program: Any) -> str:
    """The first operator of a captured program that torch.onnx would fail on, late: one that a replacement stands ready for, or one of another package."""
    ready = {*table(), *translations()}
    used = [
        node.target
        for node in program.graph.nodes
        if node.op == "call_function" and (node.target in ready or _foreign(node.target))
    ]
    known = _handled() if used else None
    return next(
        (name_of(target) for target in used if known is not None and target not in known), ""
    )


def name_of(target: Any) -> str:
    """`aten.median.dim`, as errors call it."""
    return "round" if target is round else str(target).removesuffix(".default")


def _foreign(target: Any) -> bool:
    """An operator that another package defined, and that torch can't take apart."""
    if (
        not isinstance(target, torch._ops.OpOverload)
        or target.namespace in ("aten", "prims")
        or target.namespace.startswith("onnx")
    ):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(), "CompositeImplicitAutograd"
    )


@contextmanager
def registered(added: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """torch.onnx decomposes these as well, in the one pass that it makes anyway; none of them is in torch's table."""
    known = torch._decomp.decomposition_table
    known.update(added)
    try:
        yield
    finally:
        for target in added:
            known.pop(target, None)


def split(program: Any) -> tuple[dict[Any, Callable[..., Any]], dict[Any, Callable[..., Any]]]:
    """Of the replacements that a program needs: those to put in before torch.onnx, which has a way with the operator (and fails on these types), and those for its own pass."""
    needed = {
        target: function
        for target, function in table().items()
        if any(node.target is target for node in program.graph.nodes)
    }
    known = _handled()
    early = {
        target: function for target, function in needed.items() if known is None or target in known
    }
    return early, {target: function for target, function in needed.items() if target not in early}


@cache
def _handled() -> set[Any] | None:
    """What torch.onnx translates or takes apart by itself; None where this torch does not tell."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        own = {*torch.export.default_decompositions().keys(), *torch._decomp.decomposition_table}
        return {
            *_decomp.get_onnx_implemented_overloads(_registration.ONNXRegistry.from_torchlib()),
            *own,
        }
    except (ImportError, AttributeError):
        return None


def translations() -> dict[Any, Any]:
    """For what is not an operator of torch's and stands in the graph all the same: Python's own `round` of a tensor's value."""
    from onnxscript import opset18 as op

    def half_to_even(x: Any, digits: Any = None) -> Any:
        return op.Cast(op.Round(x), to=7)

    return {round: half_to_even}
