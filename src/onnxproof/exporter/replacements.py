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


def rsub(
    x: Tensor,
    other: Any,
    alpha: Any = 1,
) -> Tensor:
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
    if ordered.dim() > 1:
        ordered = ordered.unsqueeze(-2)
    column = values.unsqueeze(-1)
    below = ordered < column
    if right or side == "right":
        below = ordered <= column
    count = below.sum(-1)
    if out_int32:
        return count.to(torch.int32)
    return count


def kthvalue(
    x: Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """The k-th of the sorted values."""
    values, places = torch.sort(x, dim)
    value = values.narrow(dim, k - 1, 1)
    place = places.narrow(dim, k - 1, 1)
    if keepdim:
        return value, place
    return value.squeeze(dim), place.squeeze(dim)


def median(
    x: Tensor,
    dim: int,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
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
    row = moved.unsqueeze(-2)
    least = torch.full((), _least(x.dtype), dtype=x.dtype, device=x.device)
    values = torch.where(earlier, row, least).amax(-1)
    is_largest = earlier & (row == values.unsqueeze(-1))
    last = torch.where(is_largest, steps, torch.full_like(steps, -1)).amax(-1)
    return values.movedim(-1, dim), last.movedim(-1, dim)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The smallest so far, and where."""
    values, places = cummax(-x, dim)
    return -values, places


def cdist(
    x: Tensor,
    y: Tensor,
    p: float = 2.0,
    compute_mode: int | None = None,
) -> Tensor:
    """The distance of every row of one to every row of the other, from their differences."""
    gaps = (x.unsqueeze(-2) - y.unsqueeze(-3)).abs()
    if p == 0:
        return (gaps != 0).to(x.dtype).sum(-1)
    if p == 2:
        return gaps.square().sum(-1).sqrt()
    if p == float("inf"):
        return gaps.amax(-1)
    return gaps.pow(p).sum(-1).pow(1 / p)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """The larger times the root of one and a square of at most one: squares alone would overflow."""
    large = torch.maximum(x.abs(), y.abs())
    small = torch.minimum(x.abs(), y.abs())
    share = small / torch.where(large == 0, torch.ones_like(large), large)
    return large * torch.sqrt(1 + share * share)


def _least(dtype: torch.dtype) -> float:
    if dtype.is_floating_point:
        return -float("inf")
    return torch.iinfo(dtype).min


Replacements = dict[Any, Callable[..., Any]]
OURS: Replacements = {
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


def table() -> Replacements:
    """Ours and those of other packages."""
    replacements = dict(OURS)
    for point in registry.points(ENTRY_POINTS):
        namespace, name, overload = point.name.split(".")
        packet = getattr(getattr(torch.ops, namespace), name)
        replacements[getattr(packet, overload)] = point.load()
    return replacements


def find_untranslated(program: Any) -> str:
    """The first operator of a captured program on which torch.onnx would fail, late: one that has a replacement, or one of another package."""
    replaceable = {*table(), *translations()}
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    suspects = [target for target in targets if target in replaceable or _is_foreign(target)]
    known = _known_operators() if suspects else None
    if known is None:
        return ""
    for target in suspects:
        if target not in known:
            return operator_name(target)
    return ""


def operator_name(target: Any) -> str:
    """`aten.median.dim`, as errors call it."""
    if target is round:
        return "round"
    return str(target).removesuffix(".default")


def _is_foreign(target: Any) -> bool:
    """An operator that another package defined, and that torch can't decompose."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if target.namespace in ("aten", "prims") or target.namespace.startswith("onnx"):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(
        target.name(),
        "CompositeImplicitAutograd",
    )


@contextmanager
def registered(added: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """torch.onnx decomposes these operators as well, in its own pass; none of them is in torch's table."""
    known = torch._decomp.decomposition_table
    known.update(added)
    try:
        yield
    finally:
        for target in added:
            known.pop(target, None)


def split_replacements(program: Any) -> tuple[Replacements, Replacements]:
    """The replacements that a program needs: those to apply before torch.onnx, which knows the operator (and fails on these types), and those for its own pass."""
    used = {node.target for node in program.graph.nodes}
    needed = {target: function for target, function in table().items() if target in used}
    if not needed:
        return {}, {}  # most programs: what torch knows is dear to ask
    known = _known_operators()
    early: Replacements = {}
    late: Replacements = {}
    for target, function in needed.items():
        if known is None or target in known:
            early[target] = function
        else:
            late[target] = function
    return early, late


@cache
def _known_operators() -> set[Any] | None:
    """What torch.onnx translates or decomposes by itself; None if this torch has no list of it."""
    try:
        from torch.onnx._internal.exporter import _decomp, _registration

        onnx_registry = _registration.ONNXRegistry.from_torchlib()
        translated = _decomp.get_onnx_implemented_overloads(onnx_registry)
        decomposed = torch.export.default_decompositions().keys()
        return {*translated, *decomposed, *torch._decomp.decomposition_table}
    except (ImportError, AttributeError):
        return None


def translations() -> dict[Any, Any]:
    """For functions in the graph that are no operators of torch's: Python's own `round` of a tensor's value."""
    from onnxscript import opset18 as op

    def half_to_even(x: Any, digits: Any = None) -> Any:
        return op.Cast(op.Round(x), to=7)

    return {round: half_to_even}
