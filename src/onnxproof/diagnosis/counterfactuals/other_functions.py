"""Another function in the place of a call of the module: an activation or a norm of another kind."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from onnxproof.diagnosis.counterfactuals.changed_reference import Change, Variant, call_instead
from onnxproof.reference.dispatch import named_arguments
from onnxproof.reference.traced_value import TracedValue

_ACTIVATIONS = (
    "relu",
    "relu6",
    "gelu",
    "silu",
    "hardswish",
    "sigmoid",
    "hardsigmoid",
    "tanh",
    "mish",
    "elu",
    "celu",
    "selu",
    "softplus",
    "leaky_relu",
    "hardtanh",
)
_REDUCTIONS = ("logsumexp", "amax", "amin", "mean", "sum")
_QUICK_GELU_FACTOR = 1.702
"""The factor of the usual approximation of gelu by a sigmoid."""


def other_functions(entry: TracedValue) -> Iterator[Variant]:
    """The call as each other function of its kind."""
    if entry.op in _ACTIVATIONS:
        yield from _other_activations(entry)
    if entry.op in _REDUCTIONS:
        yield from _other_reductions(entry)
    if entry.op == "native_layer_norm":
        yield Variant(what="without its mean", change=_first_result(_rms_norm))


def _other_activations(entry: TracedValue) -> Iterator[Variant]:
    others = {name: getattr(functional, name) for name in _ACTIVATIONS if name != entry.op}
    others["x * sigmoid(1.702 x)"] = _quick_gelu
    for name, function in others.items():
        yield Variant(
            what=f"as `{name}`",
            change=call_instead(lambda x, *rest, function=function: function(x)),
        )


def _other_reductions(entry: TracedValue) -> Iterator[Variant]:
    for name in _REDUCTIONS:
        if name != entry.op:
            function = getattr(torch, name)
            yield Variant(what=f"as `{name}`", change=_reduce_by(function))


def _reduce_by(function: Callable[..., torch.Tensor]) -> Change:
    """The same axes reduced by another function; all axes where the call names none."""

    def change(func: Any, args: Any, kwargs: Any) -> Any:
        bound = named_arguments(func, args, kwargs)
        values = bound["self"]
        axes = bound.get("dim") or list(range(values.dim()))
        return function(values, axes, bool(bound.get("keepdim", False)))

    return change


def _quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(_QUICK_GELU_FACTOR * x)


def _rms_norm(
    x: torch.Tensor, shape: list[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    """A layer norm that divides by the root mean square, and subtracts no mean."""
    normed: torch.Tensor = functional.rms_norm(x, shape, weight, eps)
    if bias is not None:
        normed = normed + bias
    return normed


def _first_result(function: Callable[..., torch.Tensor]) -> Change:
    """A call of several results whose first is another function's; the others stay."""

    def change(func: Any, args: Any, kwargs: Any) -> Any:
        _, *others = func(*args, **kwargs)
        return (function(*args, **kwargs), *others)

    return change
