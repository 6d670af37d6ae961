"""Large convolutions in float64, a stripe at a time.

Torch has no fast kernel for them: it first writes every window of the input out, nine times the input for a kernel of 3 by 3, and a
truth that needs ten times the memory of the model it judges can't be had.
"""

import math
from typing import Any

import torch
from torch.nn.functional import pad

from onnxproof.reference.dispatch import Mode

_CONVOLUTION = torch.ops.aten.convolution.default
_LARGE, _ROOM = 64 << 20, 16 << 20
"""Bytes of windows from which on it pays, and that may lie in memory at once then."""


class Stripes(Mode):
    """Runs large convolutions by stripes, everything else as it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Step in where it pays."""
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation's result; by stripes where it is a large convolution in float64."""
    if (
        func is _CONVOLUTION
        and not kwargs
        and not args[6]
        and args[0].dtype == torch.float64
        and args[0].dim() == args[1].dim() > 2
    ):
        sizes = _sizes(*args[:2], *args[3:6])
        room = (
            8 * math.prod(sizes) * (args[1][0].numel() + (args[1].shape[0] if args[8] > 1 else 0))
        )  # groups are made apart, then joined
        if room * args[0].shape[0] > _LARGE and min(sizes) > 0:
            return _striped(args, sizes, max(1, int(sizes[0] * _ROOM / room)))
    return func(*args, **kwargs)


def _sizes(
    x: torch.Tensor,
    weight: torch.Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[int]:
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    ]


def _striped(args: Any, sizes: list[int], rows: int) -> torch.Tensor:
    """Each sample by itself, and of its output some rows at a time, from the rows of the input that they look at."""
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = args
    out: torch.Tensor = x.new_empty((x.shape[0], weight.shape[0], *sizes))
    reach, height = dilation[0] * (weight.shape[2] - 1) + 1, x.shape[2]
    for sample in range(x.shape[0]):
        for begin in range(0, sizes[0], rows):
            end = min(begin + rows, sizes[0])
            first, last = begin * stride[0] - padding[0], (end - 1) * stride[0] - padding[0] + reach
            seen = x[sample : sample + 1, :, max(first, 0) : max(min(last, height), 0)]
            if first < 0 or last > height:
                above = min(max(-first, 0), last - first)
                seen = pad(
                    seen, [0, 0] * (x.dim() - 3) + [above, last - first - above - seen.shape[2]]
                )
            out[sample : sample + 1, :, begin:end] = _CONVOLUTION(
                seen, weight, bias, stride, [0, *padding[1:]], dilation, transposed, extra, groups
            )
    return out
