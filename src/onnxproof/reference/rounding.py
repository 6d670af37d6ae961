"""Two ways of running a module's own Python code in another arithmetic, one aten operation at a time.

`Promote` raises every hard-coded float dtype to float64: the truth for modules which `.double()` can't convert.
`Jitter` rounds the result of every operation anew, at random, by as much as that operation's own float32 error: the
spread of such runs is the noise that any correct float32 implementation may show. Results which are exact stay exact
(a copy, a comparison, 0.5 + 0.5), so decisions that rest on exact numbers are not blurred. It is Monte Carlo
arithmetic in the sense of Parker (1997), with the error of the real kernel as its amplitude.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from onnxproof.reference.activations import is_activation, natural_scale
from onnxproof.reference.complex_noise import TRANSFORMS, complex_scale
from onnxproof.reference.dispatch import Mode, map_arguments, named_arguments
from onnxproof.reference.lazy_float64 import PRODUCTS, SMALL, Float64Weight
from onnxproof.reference.naive_sums import SCALED_SUMS, naive_result, plain_sum_scale
from onnxproof.reference.rounding_errors import (
    Measurement,
    Noise,
    Rounding,
    RoundingErrors,
    measure,
)

_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_BLURRED = (*_NARROW, torch.complex64)


def _widen(value: Any) -> Any:
    if isinstance(value, Tensor) and value.dtype in _WIDER:
        return value.to(_WIDER[value.dtype])
    if isinstance(value, torch.dtype):
        return _WIDER.get(value, value)
    return value


def _widen_arguments(func: Any, args: Any) -> Any:
    """The arguments in float64; a large weight that is multiplied with is widened by the product itself, into memory that is used again."""
    place = PRODUCTS.get(func)
    if place is None or args[place].dtype is not torch.float32 or args[place].nbytes <= SMALL:
        return map_arguments(_widen, args)
    widened = [*map_arguments(_widen, [*args[:place], None, *args[place + 1 :]])]
    widened[place] = Float64Weight(args[place])
    return widened


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
            args, kwargs = map_arguments(widen, args), map_arguments(widen, kwargs)
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

    def follow(value: Any) -> Any:
        is_float = isinstance(value, Tensor) and value.is_floating_point()
        return value.to(dtype) if is_float else value

    return map_arguments(follow, args)


class Jitter(Mode):
    """Adds to each inexact result a random error of the size that this very operation makes in its own precision.

    `errors` remembers those sizes from one run to the next on the same inputs; with `moved` inputs it is only read.
    """

    def __init__(
        self,
        seed: int,
        amplitude: float = 1.0,
        *,
        errors: RoundingErrors | None = None,
        moved: bool = False,
    ) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(seed)
        self._amplitude = amplitude
        self._noise = Noise(seed, amplitude)
        self._errors = errors
        self._moved = moved
        self._place = 0
        """How many operations rounded so far."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run in the own precision, and round anew: by the errors that are known, or by those against a run in float64."""
        kwargs = kwargs or {}
        schema = func._schema
        if schema.is_mutable:
            written = schema.name.removeprefix("aten::").removesuffix("_")
            if is_activation(written):
                return self._in_place(written, args, kwargs)
        result = func(*args, **kwargs)
        if not _is_rounded(func, result):
            return result
        name = schema.name.split("::")[-1]
        if name == "histc":
            return self._bin_again(func, result, args, kwargs)
        single = isinstance(result, Tensor)
        results = (result,) if single else tuple(result)
        blurred = self._round_anew(func, name, results, args, kwargs)
        return blurred[0] if single else type(result)(blurred)

    def _round_anew(
        self,
        func: Any,
        name: str,
        results: tuple[Any, ...],
        args: Any,
        kwargs: Any,
    ) -> list[Any]:
        self._place += 1
        if self._errors is not None:
            known = self._errors.find(self._place, func, results, moved=self._moved)
            if known is not None:
                return self._apply(results, known)
        try:
            wide = func(*_widen_arguments(func, args), **map_arguments(_widen, kwargs))
        except (RuntimeError, NotImplementedError):
            return list(results)
        wides = (wide,) if isinstance(wide, Tensor) else tuple(wide)
        arguments = named_arguments(func, args, kwargs)
        naive = naive_result(name, arguments)  # of the first result
        scale = _error_scale(name, arguments, wide)
        roundings = [
            _measure(name, one, wide_one, naive if place == 0 else None, scale)
            for place, (one, wide_one) in enumerate(zip(results, wides, strict=True))
        ]
        blurred = self._apply(results, tuple(roundings))
        overflowed = _overflowed(results[0], naive, blurred[0])
        if overflowed is not None:
            blurred[0] = overflowed
        elif self._errors is not None and not self._moved:
            self._errors.keep(self._place, func, tuple(roundings))
        return blurred

    def _apply(self, results: tuple[Any, ...], roundings: tuple[Rounding | None, ...]) -> list[Any]:
        """Every result with a random error; a complex one as pairs of numbers."""
        blurred = list(results)
        for place, (result, rounding) in enumerate(zip(results, roundings, strict=True)):
            if rounding is None:
                continue
            if result.is_complex():
                pairs = torch.view_as_real(result.resolve_conj())
                blurred[place] = torch.view_as_complex(rounding.apply(pairs, self._noise))
            else:
                blurred[place] = rounding.apply(result, self._noise)
        return blurred

    def _in_place(self, name: str, args: Any, kwargs: Any) -> Any:
        """The gates of a recurrent cell are written over their own input: the same function, blurred as cells round it, and then written."""
        func = getattr(torch.ops.aten, name).default
        result = func(*args, **kwargs)
        if _is_rounded(func, result):
            own_name = name
            if is_activation(f"{name}_"):
                own_name = f"{name}_"
            result = self._round_anew(func, own_name, (result,), args, kwargs)[0]
        return args[0].copy_(result)

    def _bin_again(
        self,
        func: Any,
        result: Tensor,
        args: Any,
        kwargs: Any,
    ) -> Tensor:
        """Counts in bins, after each value moved by as much as its place among the bins is rounded: one on an edge lies on either side."""
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


def _measure(
    name: str,
    narrow: Any,
    wide: Any,
    naive: Tensor | None,
    scale: Tensor | None,
) -> Rounding | None:
    """The error of one result; None where it is exact, or no floats of a narrow dtype."""
    if not isinstance(narrow, Tensor):
        return None
    if narrow.dtype is torch.complex64 and scale is not None:
        scale = scale.expand(narrow.shape).unsqueeze(-1)
        narrow = torch.view_as_real(narrow.resolve_conj())
        wide, naive = torch.view_as_real(wide.resolve_conj()), None
    if narrow.dtype not in _NARROW or narrow.numel() == 0 or narrow.shape != wide.shape:
        return None
    known = Measurement(
        naive=naive,
        scale=scale,
        exact_by_luck=name in _EXACT_BY_LUCK,
        bends_at_zero=name in ("tanh", "tanh_"),
        misses_one=name == "tanh_",
        typical=name in _SUMS,
    )
    return measure(narrow, wide, known)


def _overflowed(result: Any, naive: Tensor | None, blurred: Any) -> Any:
    """The blurred result, but the naive one where a correct kernel overflows on its way and torch's does not; None where that is nowhere."""
    if naive is None or naive.shape != result.shape:
        return None
    overflows = torch.isfinite(result) & ~torch.isfinite(naive)
    return torch.where(overflows, naive.to(result.dtype), blurred) if overflows.any() else None


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


@cache
def _returns_new(func: Any) -> bool:
    """Whether an operation writes nowhere, and returns no view."""
    schema = func._schema
    aliases = any(returned.alias_info is not None for returned in schema.returns)
    return not schema.is_mutable and not aliases


def _is_rounded(func: Any, result: Any) -> bool:
    """Whether an operation rounds: it returns new narrow floats; what is drawn is not rounded, and nested tensors have no shape."""
    if not _returns_new(func):
        return False
    leaves = result if isinstance(result, tuple | list) else [result]
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if not any(tensor.dtype in _BLURRED for tensor in tensors):
        return False
    return not _draws(func) and not any(tensor.is_nested for tensor in tensors)
