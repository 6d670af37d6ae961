"""Conv and ConvTranspose: one matrix product for each position within the kernel, so that no im2col copy is made."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.windows import (
    Ints,
    WindowAttributes,
    pad_image,
    split_pads,
    split_total,
    windows_of,
)

Array = np.ndarray[Any, Any]


def convolve(
    x: Array,
    weights: Array,
    bias: Array | None,
    *,
    group: int = 1,
    **attributes: Any,
) -> Array:
    """A convolution of any rank."""
    batch, channels = x.shape[:2]
    filters = weights.shape[0]
    windows = windows_of(
        x.shape[2:], weights.shape[2:], attribute_reader.read(WindowAttributes, attributes)
    )
    padded = pad_image(x, windows.low, windows.high)
    size = math.prod(windows.counts)
    out = np.zeros((batch, group, filters // group, size), x.dtype)
    grouped = weights.reshape(group, filters // group, *weights.shape[1:])
    for position, view in windows.taps(padded):
        columns = view.reshape(batch, group, channels // group, size)
        matrices = _matrices_at(grouped, position)
        # Group by group: the product of a whole depthwise layer is as large as its output.
        for one in range(group):
            if columns.shape[2] == 1:
                out[:, one] += matrices[one] * columns[:, one]
            else:
                out[:, one] += matrices[one] @ columns[:, one]
    shaped = out.reshape(batch, filters, *windows.counts)
    if bias is not None:
        shaped += by_channel(bias, x.ndim)
    return shaped


def _matrices_at(weights: Array, position: tuple[int, ...]) -> Array:
    """The matrix of each group at one position within the kernel."""
    index: Any = (slice(None), slice(None), slice(None), *position)
    return np.asarray(weights[index])


def by_channel(values: Array, rank: int) -> Array:
    """One number for each channel, in the shape that goes with an image of that rank."""
    return values.reshape(-1, *(1,) * (rank - 2))


class Conv(OpRun):
    """Right in the evaluator, but slow, and its im2col copy of a large image does not fit in memory."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        wide = np.promote_types(x.dtype, np.float32)
        y = convolve(x.astype(wide, copy=False), w.astype(wide, copy=False), bias, **attributes)
        return (y.astype(x.dtype, copy=False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransposeAttributes:
    """The attributes of ConvTranspose, as the standard names them."""

    auto_pad: str = "NOTSET"
    dilations: Ints = None
    group: int = 1
    output_padding: Ints = None
    output_shape: Ints = None
    pads: Ints = None
    strides: Ints = None


class ConvTranspose(OpRun):
    """The evaluator raises, or mixes the channels up, when `group` is not 1, and loops in Python."""

    def _run(
        self,
        x: Array,
        w: Array,
        bias: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        y = _transposed_convolution(x, w, attribute_reader.read(_TransposeAttributes, attributes))
        if bias is not None:
            y = y + by_channel(bias, x.ndim)
        return (y.astype(x.dtype),)


def _transposed_convolution(x: Array, w: Array, attributes: _TransposeAttributes) -> Array:
    """Every input element adds its kernel to the output; negative padding makes the output larger than the kernels reach.

    1. The canvas is what the kernels reach, with the output padding and what negative padding adds.
    2. For each position within the kernel one product is added to the strided places of the canvas.
    3. Positive padding is cropped.
    """
    rank = x.ndim - 2
    batch, group, size = x.shape[0], attributes.group, x.shape[2:]
    strides = list(attributes.strides or (1,) * rank)
    dilations = list(attributes.dilations or (1,) * rank)
    reach = [
        (n - 1) * stride + (k - 1) * dilation + 1
        for n, stride, k, dilation in zip(size, strides, w.shape[2:], dilations, strict=True)
    ]
    extra = list(attributes.output_padding or (0,) * rank)
    full = [r + e for r, e in zip(reach, extra, strict=True)]
    low, high = _transposed_pads(size, full, strides, attributes)
    offsets = [max(0, -before) for before in low]
    canvas = [
        n + offset + max(0, -behind) for n, offset, behind in zip(full, offsets, high, strict=True)
    ]
    out = np.zeros((batch, group, w.shape[1], *canvas), np.promote_types(x.dtype, np.float32))  # 1
    columns = x.reshape(batch, group, x.shape[1] // group, math.prod(size))
    weights = w.reshape(group, x.shape[1] // group, *w.shape[1:]).swapaxes(1, 2)
    for position in itertools.product(*map(range, w.shape[2:])):  # 2
        axes = zip(position, dilations, offsets, size, strides, strict=True)
        target: Any = (
            ...,
            *(
                _strided(p * dilation + offset, n, stride)
                for p, dilation, offset, n, stride in axes
            ),
        )
        product = _matrices_at(weights, position) @ columns
        out[target] += product.reshape(*product.shape[:3], *size)
    crop: Any = (  # 3
        ...,
        *(
            slice(max(0, before), n - max(0, behind))
            for before, behind, n in zip(low, high, canvas, strict=True)
        ),
    )
    return np.asarray(out.reshape(batch, group * w.shape[1], *canvas)[crop])


def _strided(start: int, count: int, stride: int) -> slice:
    if not count:
        return slice(start, start, stride)
    return slice(start, start + (count - 1) * stride + 1, stride)


def _transposed_pads(
    size: Sequence[int],
    full: Sequence[int],
    strides: Sequence[int],
    attributes: _TransposeAttributes,
) -> tuple[list[int], list[int]]:
    """The padding, or what makes the output as large as it shall be."""
    rank = len(size)
    if attributes.output_shape:
        wanted = list(attributes.output_shape)[-rank:]
    elif attributes.auto_pad.startswith("SAME"):
        wanted = [n * stride for n, stride in zip(size, strides, strict=True)]
    else:
        return split_pads(attributes.pads, rank)
    # Negative where the output reaches further than the windows.
    total = [n - target for n, target in zip(full, wanted, strict=True)]
    return split_total(total, attributes.auto_pad)
