"""Large convolutions in float64, a stripe at a time.

Torch has no fast kernel for them: it first writes every window of the input out, nine times the input for a kernel of 3 by 3, and a
truth that needs ten times the memory of the model it judges can't be had.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from onnxproof.reference.dispatch import Mode
from onnxproof.reference.lazy_float64 import widen

_CONVOLUTION = torch.ops.aten.convolution.default
LARGE = 64 << 20
"""Bytes of windows from which on stripes pay. Not measured."""
AT_ONCE = 16 << 20
"""Bytes of windows that may lie in memory at once then. Not measured."""


class Stripes(Mode):
    """Runs large convolutions by stripes, everything else as it is."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Step in where it pays."""
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation's result; by stripes where it is a large convolution in float64."""
    if func is _CONVOLUTION and not kwargs and _is_float64_convolution(args):
        x, weight = args[:2]
        sizes = _output_sizes(x, weight, *args[3:6])
        per_sample = _window_bytes(weight, sizes, groups=args[8])
        if per_sample * x.shape[0] > LARGE and min(sizes) > 0:
            rows = max(1, int(sizes[0] * AT_ONCE / per_sample))
            return _convolve_by_stripes(args, sizes, rows)
    return func(*args, **kwargs)


def _is_float64_convolution(args: Any) -> bool:
    """In float64, not transposed, with a batch and at least one dim of an image."""
    x, weight, transposed = args[0], args[1], args[6]
    return not transposed and x.dtype == torch.float64 and x.dim() == weight.dim() > 2


def _window_bytes(weight: Tensor, sizes: list[int], *, groups: int) -> int:
    """What torch would write out for one sample."""
    elements = weight[0].numel()
    if groups > 1:  # they are computed one by one, then joined
        elements += weight.shape[0]
    return 8 * math.prod(sizes) * elements


def _output_sizes(
    x: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[int]:
    return [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            x.shape[2:],
            weight.shape[2:],
            stride,
            padding,
            dilation,
            strict=True,
        )
    ]


def _convolve_by_stripes(args: Any, sizes: list[int], rows: int) -> Tensor:
    """Each sample by itself, and of its output some rows at a time, from the rows of the input that they look at."""
    x, weight, bias, stride, padding, *others = args
    weight = widen(weight)  # once, not for each stripe
    out: Tensor = x.new_empty((x.shape[0], weight.shape[0], *sizes))
    dilation = others[0]
    reach = dilation[0] * (weight.shape[2] - 1) + 1
    for sample in range(x.shape[0]):
        image = x[sample : sample + 1]
        for begin in range(0, sizes[0], rows):
            end = min(begin + rows, sizes[0])
            first = begin * stride[0] - padding[0]
            last = (end - 1) * stride[0] - padding[0] + reach
            stripe = _rows(image, first, last)
            out[sample : sample + 1, :, begin:end] = _CONVOLUTION(
                stripe,
                weight,
                bias,
                stride,
                [0, *padding[1:]],
                *others,
            )
    return out


def _rows(image: Tensor, first: int, last: int) -> Tensor:
    """The rows from `first` to before `last`; those beyond the image are zeros."""
    height = image.shape[2]
    seen = image[:, :, max(first, 0) : max(min(last, height), 0)]
    if first >= 0 and last <= height:
        return seen
    above = min(max(-first, 0), last - first)
    below = last - first - above - seen.shape[2]
    return pad(seen, [0, 0] * (image.dim() - 3) + [above, below])
