"""Two ways of running a module's own Python code in another arithmetic, one aten operation at a time.

`Promote` raises every hard-coded float dtype to float64: the truth for modules which `.double()` can't convert.
`Jitter` rounds the result of every operation anew, at random, by as much as that operation's own float32 error: the
spread of such runs is the noise that any correct float32 implementation may show. Results which are exact stay exact
(a copy, a comparison, 0.5 + 0.5), so decisions that rest on exact numbers are not blurred. It is Monte Carlo
arithmetic in the sense of Parker (1997), with the error of the real kernel as its amplitude.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from onnxproof.reference.activations import is_activation, natural_scale
from onnxproof.reference.complex_noise import TRANSFORMS, complex_scale
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.naive_sums import SCALED_SUMS, naive_result, plain_sum_scale

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_BLURRED = (*_NARROW, torch.complex64)
_PIECE = 1 << 20
"""Elements that are rounded anew at once: a re-run shall not need much more memory than a run. Not measured."""


def _widen(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _WIDER:
        return value.to(_WIDER[value.dtype])
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    return value


class Promote(Mode):
    """Runs float operations in float64 whatever dtype the code asks for; `rewrites` counts how often it had to step in."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrites = 0

    def __enter__(self) -> Any:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *details: Any) -> None:
        torch.set_default_dtype(self._default)
        super().__exit__(*details)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Widen tensors and dtype arguments, then run."""
        kwargs = kwargs or {}
        if func is torch.ops.aten.view.dtype:
            return func(*args, **kwargs)
        seen = self.rewrites

        def widen(value: Any) -> Any:
            wide = _widen(value)
            self.rewrites += wide is not value
            return wide

        if not func._schema.is_mutable:
            args, kwargs = tree_map(widen, args), tree_map(widen, kwargs)
        elif isinstance(args[0], Tensor):
            # Written in place: the others follow the tensor that is written to.
            args = (args[0], *_follow_dtype(args[1:], args[0].dtype))
        widened = self.rewrites > seen
        if widened and func is torch.ops.aten._to_copy.default:
            tensor = args[0]
            if tensor.dtype == torch.float64 and kwargs.get("dtype") == torch.float64:
                return tensor.clone()
        return func(*args, **kwargs)


def _follow_dtype(args: Any, dtype: torch.dtype) -> Any:
    """Float tensors among the arguments in this dtype, if it is one of floats."""
    if not dtype.is_floating_point:
        return args

    def follow(tensor: Tensor) -> Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return tree_map_only(Tensor, follow, args)


class Jitter(Mode):
    """Adds to each inexact result a random error of the size that this very operation makes in its own precision."""

    def __init__(self, seed: int, amplitude: float = 1.0) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._amplitude = amplitude

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run twice, in the own precision and wide, and round between the two at random."""
        kwargs = kwargs or {}
        schema = func._schema
        if schema.is_mutable:
            written = schema.name.removeprefix("aten::").removesuffix("_")
            if is_activation(written):
                return self._in_place(written, args, kwargs)
        result = func(*args, **kwargs)
        if not _is_rounded(func, result):
            return result
        try:
            wide = func(*tree_map(_widen, args), **tree_map(_widen, kwargs))
        except (RuntimeError, NotImplementedError):
            return result
        if isinstance(result, Tensor):
            result = self._bin_again(func, result, args, kwargs)
        name = schema.name.split("::")[-1]
        arguments = named_arguments(func, args, kwargs)
        naive = naive_result(name, arguments)
        scale = _error_scale(name, arguments, wide)
        if isinstance(result, Tensor):
            return self._blur(result, wide, name, naive, scale)
        if not isinstance(result, tuple | list):
            return result
        blurred = list(result)
        for place, (one, wide_one) in enumerate(zip(result, wide, strict=True)):
            if isinstance(one, Tensor):
                blurred[place] = self._blur(one, wide_one, name, naive, scale)
            naive = None  # it is that of the first
        return type(result)(blurred)

    def _in_place(self, name: str, args: Any, kwargs: Any) -> Any:
        """The gates of a recurrent cell are written over their own input: the same function, blurred, and then written."""
        func = getattr(torch.ops.aten, name).default
        blurred = self.__torch_dispatch__(func, (), args, kwargs)
        return args[0].copy_(blurred)

    def _bin_again(
        self,
        func: Any,
        result: Tensor,
        args: Any,
        kwargs: Any,
    ) -> Tensor:
        """Counts in bins, after each value moved by as much as its place among the bins is rounded: one on an edge lies on either side."""
        if func._schema.name != "aten::histc":
            return result
        x = args[0]
        if not x.numel() or not x.is_floating_point():
            return result
        arguments = named_arguments(func, args, kwargs)
        ends = [abs(float(arguments.get(end) or 0)) for end in ("min", "max")]
        size = max(*ends, float(x.abs().max()))
        noise = torch.randn(x.shape, generator=self._generator).to(x.dtype)
        step = self._amplitude * size * torch.finfo(x.dtype).eps
        counts: Tensor = func(x + noise * step, *args[1:], **kwargs)
        return counts

    def _blur(
        self,
        narrow: Tensor,
        wide: Any,
        name: str,
        naive: Tensor | None,
        scale: Tensor | None,
    ) -> Tensor:
        """The result with a random error, piece by piece; a complex one as pairs of numbers."""
        if narrow.dtype is torch.complex64 and scale is not None:
            pairs = scale.expand(narrow.shape).unsqueeze(-1)
            parts = torch.view_as_real(narrow.resolve_conj())
            wide_parts = torch.view_as_real(wide.resolve_conj())
            return torch.view_as_complex(self._blur(parts, wide_parts, name, None, pairs))
        if narrow.dtype not in _NARROW or narrow.numel() == 0 or narrow.shape != wide.shape:
            return narrow
        flat, flat_wide = narrow.reshape(-1), wide.reshape(-1)
        if naive is not None:
            naive = naive.reshape(-1) if naive.shape == wide.shape else None
        if scale is not None:
            scale = scale.expand(narrow.shape).reshape(-1)
        result = torch.empty_like(flat)
        for start in range(0, flat.numel(), _PIECE):
            here = slice(start, start + _PIECE)
            result[here] = self._blur_piece(
                flat[here],
                flat_wide[here].double(),
                name,
                None if naive is None else naive[here],
                None if scale is None else scale[here],
            )
        return result.reshape(narrow.shape)

    def _blur_piece(
        self,
        narrow: Tensor,
        wide: Tensor,
        name: str,
        naive: Tensor | None,
        scale: Tensor | None,
    ) -> Tensor:
        """Where the result is not exact, the true one plus noise of this operation's own size."""
        dtype = narrow.dtype
        error = (narrow.double() - wide).abs_()
        if naive is not None:
            error = torch.maximum(error, (naive.double() - wide).abs_())
        # The largest number of a dtype was put there on purpose.
        finite = torch.isfinite(error) & (narrow.abs() != torch.finfo(dtype).max)
        error = torch.where(finite, error, 0.0)
        half_ulp = torch.finfo(dtype).eps / 2
        inexact = (wide.to(dtype).double() != wide) | (error > 0)
        size = torch.maximum(error, wide.abs() * half_ulp)
        if scale is not None:
            size = torch.maximum(size, scale.double() * half_ulp)
            if name in _EXACT_BY_LUCK:
                inexact |= scale > 0
            if name == "tanh":
                # float64 rounds tanh(1e-8) to 1e-8; ONNX Runtime's polynomial is off by 9e-8 of it. At 1 it ends, and is exact.
                inexact |= (wide != 0) & (wide.abs() < 0.5)
        if name in _SUMS:
            size = torch.clamp(size, min=float(error.square().mean().sqrt()))
        noise = torch.randn(wide.shape, generator=self._generator)
        noisy = (wide + size.mul_(noise).mul_(self._amplitude)).to(dtype)
        blurred = torch.where(inexact & finite, noisy, narrow)
        if naive is None:
            return blurred
        # A correct kernel may overflow on its way.
        overflows = torch.isfinite(narrow) & ~torch.isfinite(naive)
        return torch.where(overflows, naive.to(dtype), blurred)


_EXACT_BY_LUCK = SCALED_SUMS | TRANSFORMS
"""Operations that torch may get exactly right where another order of the same arithmetic does not: sums that cancel, the transform of a constant."""
_SUMS = frozenset(
    {
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "convolution",
        "mkldnn_convolution",
        "sum",
        "mean",
        "trace",
        "linear",
        "matmul",
        "native_layer_norm",
        "native_group_norm",
        "native_batch_norm",
        "_native_batch_norm_legit_no_training",
        "var",
        "std",
        "var_mean",
        "cumsum",
    }
)
"""Operations whose error comes from a sum: one element may be right by luck, so the tensor's typical error counts too."""


def _error_scale(name: str, arguments: dict[str, Any], wide: Any) -> Tensor | None:
    """What the error of an operation is relative to, where that is not its own result."""
    scale = natural_scale(name, arguments)
    if scale is None:
        scale = plain_sum_scale(name, arguments)
    if scale is None:
        scale = complex_scale(name, arguments, wide)
    return scale


def _draws(func: Any) -> bool:
    """Whether an operation draws random numbers; attention is tagged as if, for the sake of its dropout."""
    return torch.Tag.nondeterministic_seeded in func.tags and "attention" not in func._schema.name


def _is_rounded(func: Any, result: Any) -> bool:
    """Whether an operation rounds: it returns new narrow floats; what is drawn is not rounded, and nested tensors have no shape."""
    schema = func._schema
    if schema.is_mutable or any(returned.alias_info is not None for returned in schema.returns):
        return False
    leaves = result if isinstance(result, tuple | list) else [result]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not any(tensor.dtype in _BLURRED for tensor in tensors):
        return False
    return not _draws(func) and not any(tensor.is_nested for tensor in tensors)
