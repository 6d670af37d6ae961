"""MaxPool, AveragePool and LpPool: one array operation for each position within the kernel."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.windows import WindowAttributes, Windows, along, windows_of

Array = np.ndarray[Any, Any]


def _pool_windows(x: Array, kernel: Sequence[int], attributes: dict[str, Any]) -> Windows:
    return windows_of(x.shape[2:], kernel, attribute_reader.read(WindowAttributes, attributes))


class MaxPool(OpRun):
    """The evaluator loses NaN and loops in Python (0.3 s for a stem's pool)."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        storage_order: int = 0,
        **attributes: Any,
    ) -> tuple[Array, ...]:
        windows = _pool_windows(x, kernel_shape, attributes)
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
        padded = windows.pad(x, lowest)
        if len(self.onnx_node.output) >= 2:
            return _max_with_indices(x, windows, padded, storage_order)
        views = (view for _, view in windows.taps(padded))
        best = next(views).copy()
        for view in views:
            np.maximum(best, view, out=best)
        return (best,)


def _max_with_indices(
    x: Array,
    windows: Windows,
    padded: Array,
    storage_order: int,
) -> tuple[Array, Array]:
    """The maxima and their flat indices in the whole input, row-major or column-major within an image."""
    batch, channels, *size = x.shape
    taps = list(windows.taps(padded))
    stacked = np.stack([view for _, view in taps])
    first = stacked.argmax(axis=0)
    offsets = np.array([position for position, _ in taps])[first]
    images = np.arange(batch * channels).reshape(batch, channels, *(1,) * len(size))
    flat = images * math.prod(size)
    if storage_order:
        steps = np.cumprod([1, *size])[:-1]
    else:
        steps = np.cumprod([1, *size[::-1]])[:-1][::-1]
    for axis, dilation in enumerate(windows.dilations):
        start = along(windows.starts(axis), axis, len(size))
        flat = flat + (start + offsets[..., axis] * dilation) * steps[axis]
    return stacked.max(axis=0), flat.astype(np.int64)


class AveragePool(OpRun):
    """Right in the evaluator, but it loops in Python over every window."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        count_include_pad: int = 0,
        **attributes: Any,
    ) -> tuple[Array]:
        wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
        windows = _pool_windows(wide, kernel_shape, attributes)
        total = np.asarray(sum(view for _, view in windows.taps(windows.pad(wide, 0))))
        for axis, size in enumerate(x.shape[2:]):
            steps = np.arange(kernel_shape[axis]) * windows.dilations[axis]
            read = windows.starts(axis)[:, None] + steps
            # What the file pads may count; what `ceil_mode` adds behind it never does.
            if count_include_pad:
                counted = read < size + windows.high[axis]
            else:
                counted = (read >= 0) & (read < size)
            counts = along(counted.sum(axis=1), axis, x.ndim - 2)
            total = total / counts.astype(wide.dtype)
        return (total.astype(x.dtype),)


class LpPool(OpRun):
    """Right in the evaluator, but it loops in Python over every window."""

    def _run(
        self,
        x: Array,
        kernel_shape: Sequence[int] = (),
        p: int = 2,
        **attributes: Any,
    ) -> tuple[Array]:
        powers = np.abs(x) ** p
        windows = _pool_windows(powers, kernel_shape, attributes)
        total = sum(view for _, view in windows.taps(windows.pad(powers, 0)))
        return (np.asarray(total ** (1.0 / p)).astype(x.dtype),)
