"""The steps of operations that torch calls elementary and exporters take apart: a product before its bias, a norm before its weights.

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
    bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    return (left @ right) * alpha + bias * beta


def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    made: Tensor = aten.convolution.default(x, weight, None, *rest)
    return made if bias is None else made + bias.reshape(-1, *[1] * (made.dim() - 2))


def _normalised(x: Tensor, dims: list[int], eps: float) -> Tensor:
    """Mean, distance from it, variance, deviation, quotient: each is a value of somebody's decomposition."""
    apart = x - x.mean(dims, keepdim=True)
    variance = (apart * apart).mean(dims, keepdim=True)
    deviation = (variance + eps).sqrt()
    return apart / deviation


def _layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    made = _normalised(x, list(range(x.dim() - len(shape), x.dim())), eps)
    made = made if weight is None else made * weight
    return made if bias is None else made + bias


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
    made = _normalised(x.reshape(batch, groups, -1), [2], eps).reshape(x.shape)
    shape = [1, channels, *[1] * (x.dim() - 2)]
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


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
    apart = x - mean.reshape(shape)
    made = apart / (var + eps).sqrt().reshape(shape)
    made = made if weight is None else made * weight.reshape(shape)
    return made if bias is None else made + bias.reshape(shape)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        cubed = x * x * x
        inner = (x + 0.044715 * cubed) * math.sqrt(2 / math.pi)
        return 0.5 * x * (1 + inner.tanh())
    grown = (x / math.sqrt(2)).erf() + 1
    return x * grown * 0.5


def _silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def _rsqrt(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal()


def _hardswish(x: Tensor) -> Tensor:
    return x * ((x + 3).clamp(0, 6) / 6)


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    made: Tensor = aten.softplus.default(x * beta, 1, threshold) / beta
    return made


def _distance(left: Tensor, right: Tensor, p: float, *_: Any) -> Tensor:
    apart = (left.unsqueeze(-2) - right.unsqueeze(-3)).abs()
    if math.isinf(p):
        return apart.amax(-1)
    return (apart**p).sum(-1) ** (1 / p) if p else (apart != 0).sum(-1)


def _variance(
    x: Tensor,
    dim: list[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    dims = list(range(x.dim())) if dim is None else list(dim)
    apart = x - x.mean(dims, keepdim=True)
    count = math.prod(x.shape[d] for d in dims)
    mean = (apart * apart).mean(dims, keepdim=keepdim)
    return (mean * count) / (count - (1 if correction is None else correction))


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
