"""Sums as the simplest honest kernel makes them: one float32 accumulator, from the first element to the last.

PyTorch sums in blocks and is far more exact; runtimes often do not. The error of the plain sum is therefore part of
the noise that a faithful candidate may show (measured: the mean of 60,000 equal numbers is 4,200 times further from
the truth in ONNX Runtime than in PyTorch, and neither is wrong).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_MOST = 1 << 24


def naive(name: str, arguments: dict[str, Any]) -> torch.Tensor | None:
    """The result of a summing operation by plain sums, or None where it is not one."""
    x = arguments.get("self", arguments.get("input"))
    if (
        name not in _KERNELS
        or not isinstance(x, torch.Tensor)
        or x.dtype is not torch.float32
        or not 0 < x.numel() <= _MOST
    ):
        return None
    return _KERNELS[name](x, arguments)


def _last(x: torch.Tensor, dims: Sequence[int] | int | None) -> tuple[torch.Tensor, list[int]]:
    """The summed dims moved to the end and made one, and which they were."""
    chosen = (
        list(range(x.dim()))
        if dims is None or dims == []
        else [d % max(x.dim(), 1) for d in ([dims] if isinstance(dims, int) else dims)]
    )
    kept = [d for d in range(x.dim()) if d not in chosen]
    moved = x.permute(*kept, *chosen) if x.dim() else x.reshape(1)
    return moved.reshape([x.shape[d] for d in kept] + [-1]), chosen


def _plain_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(
        np.array(np.add.accumulate(x.numpy(), axis=-1, dtype=np.float32)[..., -1], dtype=np.float32)
    )


def _plain_product(x: torch.Tensor) -> torch.Tensor:
    """In this order a product may overflow or vanish on its way, and another order may not."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(
            np.array(
                np.multiply.accumulate(x.numpy(), axis=-1, dtype=np.float32)[..., -1],
                dtype=np.float32,
            )
        )


def _reduced(
    x: torch.Tensor, arguments: dict[str, Any], reduce: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    flat, dims = _last(x.contiguous(), arguments.get("dim"))
    result = reduce(flat)
    for d in sorted(dims) if arguments.get("keepdim") else ():
        result = result.unsqueeze(d)
    return result


def _mean(flat: torch.Tensor) -> torch.Tensor:
    return _plain_sum(flat) / flat.shape[-1]


def _variance(flat: torch.Tensor, correction: float) -> torch.Tensor:
    centred = flat - _mean(flat).unsqueeze(-1)
    return _plain_sum(centred * centred) / max(flat.shape[-1] - correction, 0)


def _normalised(
    x: torch.Tensor, groups: int, arguments: dict[str, Any], weight_shape: Sequence[int]
) -> torch.Tensor:
    flat = x.contiguous().reshape(groups, -1)
    scaled = (flat - _mean(flat).unsqueeze(-1)) / torch.sqrt(
        _variance(flat, 0).unsqueeze(-1) + float(arguments["eps"])
    )
    result = scaled.reshape(x.shape)
    weight, bias = arguments.get("weight"), arguments.get("bias")
    result = result * weight.reshape(weight_shape) if weight is not None else result
    return result + bias.reshape(weight_shape) if bias is not None else result


def _layer_norm(x: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
    shape = list(arguments["normalized_shape"])
    return _normalised(x, x.numel() // int(np.prod(shape)), arguments, shape)


def _group_norm(x: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor:
    return _normalised(
        x, x.shape[0] * int(arguments["group"]), arguments, [1, x.shape[1], *[1] * (x.dim() - 2)]
    )


def _batch_norm(x: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor | None:
    if not arguments.get("training", True):
        return None
    turned = x.transpose(0, 1).contiguous()
    shape = [x.shape[1], *[1] * (x.dim() - 1)]
    return _normalised(turned, x.shape[1], arguments, shape).transpose(0, 1)


def _pool(x: torch.Tensor, arguments: dict[str, Any]) -> torch.Tensor | None:
    sizes = list(arguments["output_size"])
    return (
        _mean(x.contiguous().flatten(-len(sizes))).reshape(*x.shape[: -len(sizes)], *sizes)
        if all(s == 1 for s in sizes)
        else None
    )


_KERNELS: dict[str, Callable[[torch.Tensor, dict[str, Any]], torch.Tensor | None]] = {
    "sum": lambda x, a: _reduced(x, a, _plain_sum),
    "mean": lambda x, a: _reduced(x, a, _mean),
    "prod": lambda x, a: _reduced(x, a, _plain_product),
    "var": lambda x, a: _reduced(x, a, lambda flat: _variance(flat, _correction(a))),
    "std": lambda x, a: _reduced(x, a, lambda flat: torch.sqrt(_variance(flat, _correction(a)))),
    "var_mean": lambda x, a: _reduced(x, a, lambda flat: _variance(flat, _correction(a))),
    "cumsum": lambda x, a: torch.from_numpy(
        np.cumsum(x.contiguous().numpy(), axis=a["dim"], dtype=np.float32)
    ),
    "linalg_vector_norm": lambda x, a: (
        _reduced(x, a, lambda flat: torch.sqrt(_plain_sum(flat * flat)))
        if a.get("ord", 2) == 2
        else None
    ),
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_adaptive_avg_pool2d": _pool,
    "_adaptive_avg_pool3d": _pool,
}


def _correction(arguments: dict[str, Any]) -> float:
    given = arguments.get("correction")
    return 1.0 if given is None else float(given)
