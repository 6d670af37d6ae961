"""A module in float64 without a second copy of its weights: each is widened when an operation reads it, and let go.

A `Float64Weight` says that it is a float64 tensor and holds the module's own narrow one. The module's code sees the dtypes
of a converted copy, and every operation gets the numbers of one: widening is exact. Views stay narrow, and what only picks
rows (an embedding) picks them first, so that a table of a hundred thousand rows is never widened as a whole.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

_aten = torch.ops.aten
_VIEWS = frozenset(
    {
        _aten.t.default,
        _aten.transpose.int,
        _aten.permute.default,
        _aten.view.default,
        _aten._unsafe_view.default,
        _aten.unsqueeze.default,
        _aten.squeeze.dim,
        _aten.detach.default,
        _aten.alias.default,
        _aten.slice.Tensor,
        _aten.select.int,
    }
)
"""Views of the same or fewer elements; one that repeats them (expand) would be widened to all its repetitions."""
_PICKS = frozenset({_aten.embedding.default, _aten.index_select.default, _aten.index.Tensor})
"""Operations whose result is elements of their first argument: those are picked narrow, and widened then."""
AT_ONCE = 192 << 20
"""Bytes of float64 weights that are held at once: of a whole model, which is then converted for good, or of one matrix. A larger matrix is multiplied by columns.
Columns round otherwise in the last bit of float64, and no model that is converted for good has such a matrix: so both ways give the same bits.
With it the peak for BERT-base is 1.1 times that of a script that holds both models (`make bench-scale`)."""
_COLUMNS_AT_ONCE = AT_ONCE // 4
SMALL = 1 << 18
"""Bytes of a weight that is converted for good: a bias is read in a microsecond, and a Python call costs ten. Not measured."""


class Float64Weight(Tensor):
    """A float64 tensor by its dtype, whose numbers are kept in the narrow dtype that they have."""

    stored: Tensor

    @staticmethod
    def __new__(cls, narrow: Tensor) -> "Float64Weight":
        """Shape and strides of the narrow one."""
        weight: Float64Weight = Tensor._make_wrapper_subclass(
            cls,
            narrow.shape,
            strides=narrow.stride(),
            storage_offset=narrow.storage_offset(),
            dtype=torch.float64,
            device=narrow.device,
        )
        weight.stored = narrow
        return weight

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Views stay narrow, picks are widened after it, all else gets widened weights."""
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, cls):
            if func in _VIEWS:
                return cls(func(first.stored, *args[1:], **kwargs))
            if func in _PICKS:
                return func(first.stored, *args[1:], **kwargs).double()
        if func._schema.is_mutable and isinstance(first, cls):
            raise WrittenWeight(f"{func} writes into a weight")
        if func in PRODUCTS and not kwargs:
            return _multiply(func, args)
        return func(*tree_map_only(cls, widen, args), **tree_map_only(cls, widen, kwargs))


class WrittenWeight(RuntimeError):
    """A pass writes into a weight: then it needs a float64 tensor of its own."""


def widen(tensor: Tensor) -> Tensor:
    """The numbers of a weight in float64; any other tensor as it is."""
    if isinstance(tensor, Float64Weight):
        return tensor.stored.double()
    return tensor


PRODUCTS = {_aten.mm.default: 1, _aten.addmm.default: 2, _aten.convolution.default: 1}
"""Operations that multiply with a weight, and its place among their arguments: their result is never a view of it."""


def _multiply(func: Any, args: tuple[Any, ...]) -> Tensor:
    """A product whose weight is widened into memory that the next one uses again: fresh pages cost as much as the widening (3.1 ms against 6.8 for 2.4 million)."""
    place = PRODUCTS[func]
    weight = args[place]
    others = tree_map_only(Float64Weight, widen, [*args[:place], None, *args[place + 1 :]])
    if isinstance(weight, Float64Weight) and weight.nbytes > AT_ONCE and weight.dim() == 2:
        return _multiply_by_columns(func, others, weight, place)
    others[place] = weight
    if isinstance(weight, Float64Weight):
        others[place] = _widen_into_scratch(weight.stored)
    product: Tensor = func(*others)
    return product


def _multiply_by_columns(func: Any, args: list[Any], weight: Float64Weight, place: int) -> Tensor:
    """mm or addmm, some columns of the matrix at a time."""
    rows, columns = args[place - 1].shape[0], weight.shape[1]
    out: Tensor = args[place - 1].new_empty((rows, columns))
    count = max(1, columns * _COLUMNS_AT_ONCE // weight.nbytes)
    for start in range(0, columns, count):
        here = slice(start, start + count)
        some = [*args]
        some[place] = weight.stored[:, here].double()
        if place == 2:
            some[0] = args[0].expand(rows, columns)[:, here]
        out[:, here] = func(*some)
    return out


_scratch = torch.empty(0, dtype=torch.float64)


def _widen_into_scratch(narrow: Tensor) -> Tensor:
    """The numbers with the same strides, in memory that holds them until the next call."""
    global _scratch
    if not (narrow.is_contiguous() or (narrow.dim() == 2 and narrow.t().is_contiguous())):
        return narrow.double()
    if _scratch.numel() < narrow.numel():
        _scratch = torch.empty(0, dtype=torch.float64)  # the old one goes first
        _scratch = torch.empty(narrow.numel(), dtype=torch.float64)
    wide = _scratch.as_strided(narrow.shape, narrow.stride())
    return wide.copy_(narrow)


def release_scratch() -> None:
    """Let the memory go between two passes."""
    global _scratch
    _scratch = torch.empty(0, dtype=torch.float64)


def copy_in_float64(module: nn.Module, *, lazy: bool) -> nn.Module:
    """The module as `.double()` would make it, the user's own left as it is; with `lazy` its large parameters are widened when they are read.

    The tensors are handed to deepcopy as copied already, so that the narrow ones are not copied first.
    """
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        if parameter.is_floating_point():
            memo[id(parameter)] = _wide_parameter(parameter, lazy=lazy)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            memo[id(buffer)] = buffer.detach().to(torch.float64, copy=True)
    copied: nn.Module = copy.deepcopy(module, memo)
    return copied


def _wide_parameter(parameter: nn.Parameter, *, lazy: bool) -> nn.Parameter:
    narrow = parameter.detach()
    if lazy and narrow.nbytes > SMALL and parameter.dtype is not torch.float64:
        # as the parameter has it: matmul folds a batch where gradients may be needed, and rounds otherwise
        return nn.Parameter(Float64Weight(narrow), requires_grad=parameter.requires_grad)
    wide = narrow.to(torch.float64, copy=True)
    return nn.Parameter(wide, requires_grad=parameter.requires_grad)


def can_be_widened_piece_by_piece(module: Any) -> bool:
    """Whether plain parameters are all that a conversion has to change: not in TorchScript, nor where a module converts itself."""
    if not isinstance(module, nn.Module):
        return False
    return not any(
        isinstance(part, torch.jit.ScriptModule)
        or type(part)._apply not in (nn.Module._apply, nn.RNNBase._apply)
        or type(part).double is not nn.Module.double
        or any(type(p) is not nn.Parameter for p in part.parameters(recurse=False))
        for part in module.modules()
    )
