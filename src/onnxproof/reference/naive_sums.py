"""Sums as the simplest correct kernel makes them: one float32 accumulator, from the first element to the last.

PyTorch sums in blocks and is far more exact; runtimes often do not. The error of the plain sum is therefore part of
the noise that a faithful candidate may show (measured: the mean of 60,000 equal numbers is 4,200 times further from
the truth in ONNX Runtime than in PyTorch, and neither is wrong).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

Arguments = dict[str, Any]
_MOST = 1 << 24
"""Elements up to which a sum is made once more. Not measured."""
_FLOAT32_INTEGERS = float(1 << 24)
"""Up to here float32 holds every whole number."""


def naive_result(name: str, arguments: Arguments) -> Tensor | None:
    """The result of a summing operation by plain sums, or None where it is not one."""
    x = arguments.get("self", arguments.get("input"))
    if name not in _KERNELS or not isinstance(x, Tensor):
        return None
    if x.dtype is not torch.float32 or not 0 < x.numel() <= _MOST:
        return None
    return _KERNELS[name](x, arguments)


def plain_sum_scale(name: str, arguments: Arguments) -> Tensor | None:
    """What the error of a plain sum or mean is typically relative to: the root of its partial sums' squares, in order or shuffled, over the root of 3.

    A few terms that cancel may be added without an error by luck, in torch's order and in the plain one. (Seen: means of 8 numbers, of
    which ONNX Runtime was off by 1.2e-7, a rounding of one partial sum, and 30 times what re-runs of torch had shown.)
    0 where every partial sum is exact in any order, as those of whole numbers are.
    """
    x = arguments.get("self", arguments.get("input"))
    if name not in _SCALED or not isinstance(x, Tensor):
        return None
    if x.dtype is not torch.float32 or not 0 < x.numel() <= _MOST:
        return None
    return _SCALED[name](x, arguments)


def _move_last(x: Tensor, dims: Sequence[int] | int | None) -> tuple[Tensor, list[int]]:
    """The summed dims moved to the end and made one, and which they were."""
    chosen = _chosen_dims(x.dim(), dims)
    if x.dim() == 0:
        return x.reshape(1), chosen
    kept = [d for d in range(x.dim()) if d not in chosen]
    shape = [x.shape[d] for d in kept]
    return x.permute(*kept, *chosen).reshape([*shape, -1]), chosen


def _chosen_dims(rank: int, dims: Sequence[int] | int | None) -> list[int]:
    if dims is None or dims == []:
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return [d % max(rank, 1) for d in dims]


def _plain_sum(x: Tensor) -> Tensor:
    partial_sums = np.add.accumulate(x.numpy(), axis=-1, dtype=np.float32)
    return torch.from_numpy(np.array(partial_sums[..., -1], dtype=np.float32))


def _plain_product(x: Tensor) -> Tensor:
    """In this order a product may overflow or vanish on its way, and another order may not."""
    with np.errstate(all="ignore"):
        partial_products = np.multiply.accumulate(x.numpy(), axis=-1, dtype=np.float32)
        return torch.from_numpy(np.array(partial_products[..., -1], dtype=np.float32))


def _reduce(
    x: Tensor,
    arguments: Arguments,
    reduce: Callable[[Tensor], Tensor],
) -> Tensor:
    flat, dims = _move_last(x.contiguous(), arguments.get("dim"))
    result = reduce(flat)
    if arguments.get("keepdim"):
        for d in sorted(dims):
            result = result.unsqueeze(d)
    return result


def _sum_scale(x: Tensor) -> Tensor:
    terms = x.numpy()
    partial_sums = np.add.accumulate(terms, axis=-1, dtype=np.float64)[..., 1:]
    in_order = np.square(partial_sums).sum(-1)
    # in a random order the k-th partial sum of terms that cancel is about the root of k of them
    shuffled = np.square(terms, dtype=np.float64).sum(-1) * terms.shape[-1] / 2.0
    scale = np.sqrt(np.maximum(in_order, shuffled) / 3.0)
    total = np.abs(terms).sum(-1, dtype=np.float64)
    exact = total <= _FLOAT32_INTEGERS * _common_unit(terms)
    return torch.from_numpy(np.asarray(np.where(exact, 0.0, scale)))


def _common_unit(terms: Any) -> Any:
    """The largest power of two of which every number in a row is a multiple; infinite for a row of zeros."""
    mantissas, exponents = np.frexp(terms)
    whole = np.where(np.isfinite(terms), mantissas * _FLOAT32_INTEGERS, 0.0).astype(np.int64)
    units = np.ldexp((whole & -whole).astype(np.float64), exponents - 24)
    return np.where(whole == 0, np.inf, units).min(-1)


def _mean_scale(flat: Tensor) -> Tensor:
    return _sum_scale(flat) / flat.shape[-1]


def _mean(flat: Tensor) -> Tensor:
    return _plain_sum(flat) / flat.shape[-1]


def _variance(flat: Tensor, correction: float) -> Tensor:
    centred = flat - _mean(flat).unsqueeze(-1)
    return _plain_sum(centred * centred) / max(flat.shape[-1] - correction, 0)


def _normalize(
    x: Tensor,
    groups: int,
    arguments: Arguments,
    weight_shape: Sequence[int],
) -> Tensor:
    flat = x.contiguous().reshape(groups, -1)
    centred = flat - _mean(flat).unsqueeze(-1)
    variance = _variance(flat, 0).unsqueeze(-1)
    scaled = centred / torch.sqrt(variance + float(arguments["eps"]))
    result = scaled.reshape(x.shape)
    weight, bias = arguments.get("weight"), arguments.get("bias")
    if weight is not None:
        result = result * weight.reshape(weight_shape)
    if bias is not None:
        result = result + bias.reshape(weight_shape)
    return result


def _layer_norm(x: Tensor, arguments: Arguments) -> Tensor:
    shape = list(arguments["normalized_shape"])
    groups = x.numel() // int(np.prod(shape))
    return _normalize(x, groups, arguments, shape)


def _group_norm(x: Tensor, arguments: Arguments) -> Tensor:
    groups = x.shape[0] * int(arguments["group"])
    weight_shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
    return _normalize(x, groups, arguments, weight_shape)


def _batch_norm(x: Tensor, arguments: Arguments) -> Tensor | None:
    if not arguments.get("training", True):
        return None
    channels_first = x.transpose(0, 1).contiguous()
    weight_shape = [x.shape[1], *[1] * (x.dim() - 1)]
    return _normalize(channels_first, x.shape[1], arguments, weight_shape).transpose(0, 1)


def _pool(x: Tensor, arguments: Arguments) -> Tensor | None:
    return _pool_by(_mean, x, arguments)


def _pool_by(
    reduce: Callable[[Tensor], Tensor],
    x: Tensor,
    arguments: Arguments,
) -> Tensor | None:
    sizes = list(arguments["output_size"])
    if any(size != 1 for size in sizes):
        return None
    axes = len(sizes)
    reduced = reduce(x.contiguous().flatten(-axes))
    return reduced.reshape(*x.shape[:-axes], *sizes)


def _trace_of(x: Tensor, arguments: Arguments) -> Tensor:
    return _plain_sum(x.diagonal().contiguous())


def _sum_of(x: Tensor, arguments: Arguments) -> Tensor:
    return _reduce(x, arguments, _plain_sum)


def _mean_of(x: Tensor, arguments: Arguments) -> Tensor:
    return _reduce(x, arguments, _mean)


def _product_of(x: Tensor, arguments: Arguments) -> Tensor:
    return _reduce(x, arguments, _plain_product)


def _variance_of(x: Tensor, arguments: Arguments) -> Tensor:
    correction = arguments.get("correction")
    if correction is None:
        correction = 1.0
    return _reduce(x, arguments, lambda flat: _variance(flat, float(correction)))


def _deviation_of(x: Tensor, arguments: Arguments) -> Tensor:
    return torch.sqrt(_variance_of(x, arguments))


def _cumulative_sum(x: Tensor, arguments: Arguments) -> Tensor:
    sums = np.cumsum(x.contiguous().numpy(), axis=arguments["dim"], dtype=np.float32)
    return torch.from_numpy(sums)


def _euclidean_norm(x: Tensor, arguments: Arguments) -> Tensor | None:
    if arguments.get("ord", 2) != 2:
        return None
    return _reduce(x, arguments, lambda flat: torch.sqrt(_plain_sum(flat * flat)))


_KERNELS: dict[str, Callable[[Tensor, Arguments], Tensor | None]] = {
    "sum": _sum_of,
    "mean": _mean_of,
    "trace": _trace_of,
    "prod": _product_of,
    "var": _variance_of,
    "std": _deviation_of,
    "var_mean": _variance_of,
    "cumsum": _cumulative_sum,
    "linalg_vector_norm": _euclidean_norm,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_adaptive_avg_pool2d": _pool,
    "_adaptive_avg_pool3d": _pool,
}
_SCALED: dict[str, Callable[[Tensor, Arguments], Tensor | None]] = {
    "sum": lambda x, arguments: _reduce(x, arguments, _sum_scale),
    "mean": lambda x, arguments: _reduce(x, arguments, _mean_scale),
    "trace": lambda x, arguments: _sum_scale(x.diagonal().contiguous()),
    "_adaptive_avg_pool2d": lambda x, arguments: _pool_by(_mean_scale, x, arguments),
    "_adaptive_avg_pool3d": lambda x, arguments: _pool_by(_mean_scale, x, arguments),
}
SCALED_SUMS = frozenset(_SCALED)
"""The operations of which `plain_sum_scale` knows the scale."""
