"""Where the windows of a convolution or a pool lie, and what they see, in whole-array numpy: onnx's evaluator loops over every output element."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Ints = Sequence[int] | None
Taps = Iterator[tuple[tuple[int, ...], Array]]
"""Positions within the kernel, each with the elements that it reads in all windows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAttributes:
    """The attributes that convolutions and pools share, as the standard names them."""

    auto_pad: str = "NOTSET"
    ceil_mode: int = 0
    dilations: Ints = None
    pads: Ints = None
    strides: Ints = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The windows along each axis of an image of any rank."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    low: Sequence[int]
    """Padding before the image."""
    high: Sequence[int]
    """Padding behind it, as the file says."""
    counts: Sequence[int]
    """How many windows there are."""

    @property
    def spans(self) -> list[int]:
        """Elements from the first to the last of a window."""
        return _spans(self.kernel, self.dilations)

    def pad(self, x: Array, fill: Any) -> Array:
        """The image with as much padding as the windows reach, which `ceil_mode` may make more than the file says."""
        axes = zip(self.counts, self.strides, self.spans, x.shape[2:], self.low, strict=True)
        behind = [
            max(0, (count - 1) * stride + span - size - low)
            for count, stride, span, size, low in axes
        ]
        return pad_image(x, self.low, behind, fill)

    def taps(self, padded: Array) -> Taps:
        """For each position within the kernel, the elements that it reads in all windows at once (a view)."""
        for position in itertools.product(*map(range, self.kernel)):
            axes = zip(position, self.dilations, self.counts, self.strides, strict=True)
            window: Any = (..., *(_tap(p * d, count, stride) for p, d, count, stride in axes))
            yield position, padded[window]

    def starts(self, axis: int) -> Array:
        """Where each window begins along an axis, counted from the first element of the image."""
        return np.asarray(np.arange(self.counts[axis]) * self.strides[axis] - self.low[axis])


def _tap(start: int, count: int, stride: int) -> slice:
    if not count:
        return slice(start, 0, stride)
    return slice(start, start + (count - 1) * stride + 1, stride)


def windows_of(
    shape: Sequence[int],
    kernel: Sequence[int],
    attributes: WindowAttributes,
) -> Windows:
    """The windows of a kernel over an image of this shape, without batch and channels."""
    ones = [1] * len(shape)
    strides = list(attributes.strides or ones)
    dilations = list(attributes.dilations or ones)
    spans = _spans(kernel, dilations)
    low, high = _paddings(shape, spans, strides, attributes)
    counts = [
        _count(size + before + behind - span, stride, size + before, attributes.ceil_mode)
        for size, before, behind, span, stride in zip(shape, low, high, spans, strides, strict=True)
    ]
    return Windows(
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        low=low,
        high=high,
        counts=counts,
    )


def _spans(kernel: Sequence[int], dilations: Sequence[int]) -> list[int]:
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=True)]


def _count(free: int, stride: int, end: int, ceil_mode: int) -> int:
    """Windows along one axis: `free` elements are left of the padded image beside the first window."""
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    if (count - 1) * stride >= end:  # a window must begin inside the input or its left pad
        return count - 1
    return count


def pad_image(
    x: Array,
    low: Sequence[int],
    high: Sequence[int],
    fill: Any = 0,
) -> Array:
    """The image with this padding around it; batch and channels stay."""
    if not any(low) and not any(high):
        return x
    return np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)], constant_values=fill)


def split_pads(pads: Ints, rank: int) -> tuple[list[int], list[int]]:
    """The padding before and behind each axis."""
    values = list(pads or (0,) * (2 * rank))
    return values[:rank], values[rank:]


def _paddings(
    shape: Sequence[int],
    spans: Sequence[int],
    strides: Sequence[int],
    attributes: WindowAttributes,
) -> tuple[list[int], list[int]]:
    if attributes.auto_pad.startswith("SAME"):
        total = [
            max(0, (-(-size // stride) - 1) * stride + span - size)
            for size, span, stride in zip(shape, spans, strides, strict=True)
        ]
        return split_total(total, attributes.auto_pad)
    if attributes.auto_pad == "NOTSET":
        return split_pads(attributes.pads, len(shape))
    return split_pads(None, len(shape))


def split_total(total: Sequence[int], auto_pad: str) -> tuple[list[int], list[int]]:
    """Padding by halves; the odd element goes behind for SAME_UPPER, else before."""
    less = [count // 2 for count in total]
    more = [count - count // 2 for count in total]
    if auto_pad == "SAME_UPPER":
        return less, more
    return more, less


def along(values: Array, axis: int, rank: int) -> Array:
    """A vector in the shape that broadcasts along one of `rank` axes."""
    shape = [1] * rank
    shape[axis] = -1
    return values.reshape(shape)
