"""The steps of operations that torch calls elementary and exporters decompose: a product before its bias, a norm before its weights.

A file's value inside such an operation is then one of the module's, and a fault there is named where it is instead of
where the operation ends. Each function computes what the operation computes; only the values on the way matter.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _addmm(
    bias: Tensor,
    left: Tensor,
    right: Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    return (left @ right) * alpha + bias * beta


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    result: Tensor = aten.convolution.default(x, weight, None, *rest)
    if bias is None:
        return result
    return result + bias.reshape(-1, *[1] * (result.dim() - 2))


def _normalize(
    x: Tensor,
    dims: list[int],
    eps: float,
) -> Tensor:
    """Mean, distance from it, variance, deviation, quotient: each is a value of some decomposition."""
    centred = x - x.mean(dims, keepdim=True)
    variance = (centred * centred).mean(dims, keepdim=True)
    deviation = (variance + eps).sqrt()
    return centred / deviation


def _scale_and_shift(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    if weight is not None:
        x = x * weight
    if bias is not None:
        x = x + bias
    return x


def _as_channels(parameter: Tensor | None, dims: int) -> Tensor | None:
    """One number a channel, in a shape that broadcasts over a batch with so many dims."""
    if parameter is None:
        return None
    return parameter.reshape(1, -1, *[1] * (dims - 2))


def _layer_norm(
    x: Tensor,
    shape: list[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Tensor:
    dims = list(range(x.dim() - len(shape), x.dim()))
    return _scale_and_shift(_normalize(x, dims, eps), weight, bias)


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    size: int,
    groups: int,
    eps: float,
) -> Tensor:
    normalized = _normalize(x.reshape(batch, groups, -1), [2], eps).reshape(x.shape)
    weight = _as_channels(weight, x.dim())
    bias = _as_channels(bias, x.dim())
    return _scale_and_shift(normalized, weight, bias)


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> Tensor:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    centred = x - mean.reshape(shape)
    normalized = centred / (var + eps).sqrt().reshape(shape)
    weight = _as_channels(weight, x.dim())
    bias = _as_channels(bias, x.dim())
    return _scale_and_shift(normalized, weight, bias)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        cubed = x * x * x
        inner = (x + 0.044715 * cubed) * math.sqrt(2 / math.pi)
        return 0.5 * x * (1 + inner.tanh())
    shifted = (x / math.sqrt(2)).erf() + 1
    return x * shifted * 0.5


def _silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def _rsqrt(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal()


def _hardswish(x: Tensor) -> Tensor:
    return x * ((x + 3).clamp(0, 6) / 6)


def _softplus(
    x: Tensor,
    beta: float = 1,
    threshold: float = 20,
) -> Tensor:
    result: Tensor = aten.softplus.default(x * beta, 1, threshold) / beta
    return result


def _distance(left: Tensor, right: Tensor, p: float, *_: Any) -> Tensor:
    differences = (left.unsqueeze(-2) - right.unsqueeze(-3)).abs()
    if math.isinf(p):
        return differences.amax(-1)
    if not p:
        return (differences != 0).sum(-1)
    return (differences**p).sum(-1) ** (1 / p)


def _variance(
    x: Tensor,
    dim: list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    dims = list(range(x.dim()) if dim is None else dim)
    if correction is None:
        correction = 1
    centred = x - x.mean(dims, keepdim=True)
    count = math.prod(x.shape[d] for d in dims)
    mean = (centred * centred).mean(dims, keepdim=keepdim)
    return (mean * count) / (count - correction)


STEPS: dict[Any, Callable[..., Any]] = {
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.convolution.default: _convolution,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm,
    aten.gelu.default: _gelu,
    aten.silu.default: _silu,
    aten.rsqrt.default: _rsqrt,
    aten.hardswish.default: _hardswish,
    aten.softplus.default: _softplus,
    aten._cdist_forward.default: _distance,
    aten.var.correction: _variance,
}
"""Torch's own decompositions serve for the others; the first of them to be called loads what it needs in half a second."""

WHOLE = frozenset(
    {
        aten.add,
        aten.sub,
        aten.rsub,
        aten.mul,
        aten.div,
        aten.mm,
        aten.bmm,
        aten.relu,
        aten.tanh,
        aten.sigmoid,
        aten.exp,
        aten.sqrt,
        aten.sum,
        aten.mean,
        aten.cat,
        aten.stack,
        aten.where,
        aten.masked_fill,
        aten.clamp_min,
        aten.clamp_max,
        aten.index,
        aten.embedding,
        aten.clone,
        aten._to_copy,
        aten._unsafe_view,
        aten.arange,
        aten.full,
        aten.ones,
        aten.zeros,
        aten.full_like,
        aten.ones_like,
        aten.zeros_like,
        aten.empty_like,
        aten.new_full,
        aten.new_ones,
        aten.new_zeros,
        aten.new_empty,
        aten._softmax,
        aten.max_pool2d_with_indices,
        aten.avg_pool2d,
    }
)
"""Frequent operations with no value inside that an exporter would show."""
