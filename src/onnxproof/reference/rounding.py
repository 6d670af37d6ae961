"""Two ways of running a module's own Python code in another arithmetic, one aten operation at a time.

`Promote` raises every hard-coded float dtype to float64: the truth for modules which `.double()` can't convert.
`Jitter` rounds the result of every operation anew, at random, by as much as that operation's own float32 error: the
spread of such runs is the noise that any honest float32 implementation may show. Results which are exact stay exact
(a copy, a comparison, 0.5 + 0.5), so decisions that rest on exact numbers are not blurred. It is Monte Carlo
arithmetic in the sense of Parker (1997), with the error of the real kernel as its amplitude.
"""

from typing import Any

import torch
from torch.utils._pytree import tree_map, tree_map_only

from onnxproof.reference.activations import is_activation, natural_scale
from onnxproof.reference.dispatch import Mode, named_arguments
from onnxproof.reference.naive_sums import naive

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_PIECE = 1 << 20


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(_WIDER[value.dtype]) if value.dtype in _WIDER else value
    return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value


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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
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
        elif isinstance(
            args[0], torch.Tensor
        ):  # written in place: the others follow the tensor that is kept
            kept = args[0].dtype
            args = (
                args[0],
                *tree_map_only(
                    torch.Tensor,
                    lambda t: t.to(kept) if t.is_floating_point() and kept.is_floating_point else t,
                    args[1:],
                ),
            )
        if (
            func is torch.ops.aten._to_copy.default
            and self.rewrites > seen
            and kwargs.get("dtype") == args[0].dtype
        ):
            return args[0].clone() if args[0].dtype == torch.float64 else func(*args, **kwargs)
        return func(*args, **kwargs)


class Jitter(Mode):
    """Adds to each inexact result a random error of the size that this very operation makes in its own precision."""

    def __init__(self, seed: int, amplitude: float = 1.0) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._amplitude = amplitude

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run twice, in the own precision and wide, and round between the two at random."""
        kwargs = kwargs or {}
        schema = func._schema
        written = schema.name.removeprefix("aten::").removesuffix("_") if schema.is_mutable else ""
        if is_activation(written):
            return self._in_place(written, args, kwargs)
        result = func(*args, **kwargs)
        if (
            schema.is_mutable
            or any(r.alias_info is not None for r in schema.returns)
            or not _has_narrow(result)
        ):
            return result
        if _draws(func) or _has_nested(
            result
        ):  # what is drawn is not rounded, and nested tensors have no shape
            return result
        try:
            wide = func(*tree_map(_widen, args), **tree_map(_widen, kwargs))
        except (RuntimeError, NotImplementedError):
            return result
        name = schema.name.split("::")[-1]
        named = named_arguments(func, args, kwargs)
        plain = naive(name, named)
        if isinstance(result, torch.Tensor):
            return self._blur(
                self._binned(func, result, name, args, kwargs),
                wide,
                name,
                plain,
                natural_scale(name, named),
            )
        if isinstance(result, tuple | list):
            plains = [plain, *[None] * (len(result) - 1)]
            scale = natural_scale(name, named)
            return type(result)(
                self._blur(r, w, name, p, scale) if isinstance(r, torch.Tensor) else r
                for r, w, p in zip(result, wide, plains, strict=True)
            )
        return result

    def _in_place(self, name: str, args: Any, kwargs: Any) -> Any:
        """The gates of a recurrent cell are written over their own input: the same function, blurred, and then written."""
        func = getattr(torch.ops.aten, name).default
        blurred = self.__torch_dispatch__(func, (), args, kwargs)
        return args[0].copy_(blurred)

    def _binned(
        self, func: Any, result: torch.Tensor, name: str, args: Any, kwargs: Any
    ) -> torch.Tensor:
        """Counts in bins, after each value moved by as much as its place among the bins is rounded: one on an edge lies on either side."""
        if name != "histc" or not args[0].numel() or not args[0].is_floating_point():
            return result
        x, ends = args[0], named_arguments(func, args, kwargs)
        size = max(
            abs(float(ends.get("min") or 0)), abs(float(ends.get("max") or 0)), float(x.abs().max())
        )
        noise = torch.randn(x.shape, generator=self._generator).to(x.dtype)
        moved: torch.Tensor = func(
            x + noise * (self._amplitude * size * torch.finfo(x.dtype).eps), *args[1:], **kwargs
        )
        return moved

    def _blur(
        self,
        narrow: torch.Tensor,
        wide: Any,
        name: str,
        plain: torch.Tensor | None = None,
        natural: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if (
            narrow.dtype not in (torch.float32, torch.float16, torch.bfloat16)
            or narrow.numel() == 0
            or narrow.shape != wide.shape
        ):
            return narrow
        flat, true = narrow.reshape(-1), wide.reshape(-1)
        plain = plain.reshape(-1) if plain is not None and plain.shape == wide.shape else None
        natural = None if natural is None else natural.expand(narrow.shape).reshape(-1)
        result = torch.empty_like(flat)
        for start in range(
            0, flat.numel(), _PIECE
        ):  # in pieces: a re-run shall not need much more memory than a run
            here = slice(start, start + _PIECE)
            result[here] = self._blurred(
                flat[here],
                true[here].double(),
                name,
                None if plain is None else plain[here],
                None if natural is None else natural[here],
            )
        return result.reshape(narrow.shape)

    def _blurred(
        self,
        narrow: torch.Tensor,
        wide: torch.Tensor,
        name: str,
        plain: torch.Tensor | None,
        natural: torch.Tensor | None,
    ) -> torch.Tensor:
        """One piece: where the result is not exact, the true one plus noise of this operation's own size."""
        error = (narrow.double() - wide).abs_()
        if plain is not None:
            error = torch.maximum(error, (plain.double() - wide).abs_())
        finite = torch.isfinite(error) & (
            narrow.abs() != torch.finfo(narrow.dtype).max
        )  # the largest number of a dtype was put there on purpose
        error = torch.where(finite, error, 0.0)
        unit = torch.finfo(narrow.dtype).eps
        inexact = (wide.to(narrow.dtype).double() != wide) | (error > 0)
        size = torch.maximum(error, wide.abs() * (unit / 2))
        if natural is not None:
            size = torch.maximum(size, natural.double() * (unit / 2))
        if name in _SUMS:
            size = torch.clamp(size, min=float(error.square().mean().sqrt()))
        noise = torch.randn(wide.shape, generator=self._generator)
        blurred = torch.where(
            inexact & finite,
            (wide + size.mul_(noise).mul_(self._amplitude)).to(narrow.dtype),
            narrow,
        )
        if plain is None:
            return blurred
        return torch.where(
            torch.isfinite(narrow) & ~torch.isfinite(plain), plain.to(narrow.dtype), blurred
        )  # overflow on the way of an honest kernel


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


def _draws(func: Any) -> bool:
    """Whether an operation draws random numbers; attention is tagged as if, for the sake of its dropout."""
    return torch.Tag.nondeterministic_seeded in func.tags and "attention" not in func._schema.name


def _has_nested(result: Any) -> bool:
    return any(
        isinstance(leaf, torch.Tensor) and leaf.is_nested
        for leaf in (result if isinstance(result, tuple | list) else [result])
    )


def _has_narrow(result: Any) -> bool:
    leaves = result if isinstance(result, tuple | list) else [result]
    return any(
        isinstance(leaf, torch.Tensor)
        and leaf.dtype in (torch.float32, torch.float16, torch.bfloat16)
        for leaf in leaves
    )
