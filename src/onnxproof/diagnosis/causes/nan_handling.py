"""NaN or infinity is treated otherwise.

What it is: an operator that passes NaN on in PyTorch drops it in the runtime (or the other way round), so a spoiled
input gives a clean-looking answer; or a guard that replaces NaN was lost.

Why it happens: max, min, clip and sort have no agreed meaning for NaN, and fast kernels take the cheaper one.

How to see it: the module with one of its operations dropping NaN, or making it by the textbook formula, gives what the
candidate gives. That the two agree on ordinary values alone makes it likely, no more.

How to fix it: check inputs before the model, or guard with `torch.where(torch.isnan(x), ...)` in it.

Example: the maximum over time of a sequence with one NaN frame.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from onnxproof.diagnosis.counterfactuals.changed_reference import (
    Arguments,
    Change,
    Keywords,
    Variant,
    call_instead,
    skip_call,
)
from onnxproof.diagnosis.counterfactuals.workbench import Array, Tried, Workbench
from onnxproof.reference.traced_value import TracedValue
from onnxproof.results import Domain

TITLE = "NaN or infinity is treated otherwise"
PRICE = 4
_ORDINARY = 0.5
"""What stands in the place of NaN and infinity: a value that most operators take. Not measured."""
_LARGEST = ("max", "amax", "maximum", "fmax", "argmax", "topk", "sort", "max_pool2d_with_indices")
_SMALLEST = ("min", "amin", "minimum", "fmin", "argmin")
_BOUNDS = ("clamp", "clamp_min", "clamp_max", "relu", "hardtanh", "relu6", "threshold")
_PLAIN_FORMULAS: dict[str, Callable[..., Any]] = {
    "logsumexp": lambda x, dim, *keep: torch.log(torch.exp(x).sum(dim, *keep)),
    "logcumsumexp": lambda x, dim: torch.log(torch.cumsum(torch.exp(x), dim)),
    "logaddexp": lambda a, b: torch.log(torch.exp(a) + torch.exp(b)),
    "logaddexp2": lambda a, b: torch.log2(torch.exp2(a) + torch.exp2(b)),
}


def test(workbench: Workbench) -> Tried | str:
    """Each suspected call with NaN dropped, passed on or made; then ordinary values in the place of the odd ones, which shows a likeness."""
    case = workbench.scene.case
    if workbench.scene.gap is None or case.domain not in (Domain.NAN, Domain.INF):
        return "the witness holds neither NaN nor infinity"
    tried = workbench.try_in_reference(_variants)
    if isinstance(tried, Tried):
        return tried
    inputs = {name: _make_finite(array) for name, array in case.inputs.items()}
    after = workbench.distance(None, inputs=inputs, truth=workbench.truth_of(inputs))
    if after > workbench.limit:
        return f"{tried}; with finite values in place of the odd ones ({case.about}) the two differ, too"
    what = f"with finite values in place of the odd ones ({case.about}) the two agree"
    return Tried(evidence=f"{what}; which operation treats them otherwise is not shown")


def _variants(entry: TracedValue) -> Iterator[Variant]:
    if entry.op in _LARGEST:
        yield Variant(what="with NaN dropped", change=_with_nan_as(-math.inf))
    if entry.op in _SMALLEST:
        yield Variant(what="with NaN dropped", change=_with_nan_as(math.inf))
    if entry.op in (*_LARGEST, *_SMALLEST):
        yield Variant(what="with NaN as 0", change=_with_nan_as(0.0))
    if entry.op.rstrip("_") in _BOUNDS:
        yield Variant(what="with NaN as its least value", change=_bound_of_nan(-math.inf))
        yield Variant(what="with NaN as its largest value", change=_bound_of_nan(math.inf))
    if entry.op in ("nan_to_num", "nan_to_num_"):
        yield Variant(what="left out", change=skip_call())
    if entry.op in _PLAIN_FORMULAS:
        change = call_instead(_PLAIN_FORMULAS[entry.op])
        yield Variant(what="by its textbook formula", change=change)


def _with_nan_as(number: float) -> Change:
    """The call with this number for every NaN that it is given."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        return func(*(_replace_nan(argument, number) for argument in args), **kwargs)

    return change


def _replace_nan(argument: Any, number: float) -> Any:
    if not isinstance(argument, torch.Tensor) or not argument.is_floating_point():
        return argument
    return torch.where(torch.isnan(argument), torch.full_like(argument, number), argument)


def _bound_of_nan(number: float) -> Change:
    """The call with what it makes of this number in the place of NaN."""

    def change(func: Any, args: Arguments, kwargs: Keywords) -> Any:
        return func(_replace_nan(args[0], number), *args[1:], **kwargs)

    return change


def _make_finite(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.where(np.isfinite(array), array, np.asarray(_ORDINARY, array.dtype))
