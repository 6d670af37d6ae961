"""Resize and Upsample: along each axis a matrix with the weight of every input pixel for every output pixel."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import attributes as attribute_reader
from onnxproof.runtimes.evaluator.windows import Ints

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attributes:
    """The attributes of Resize, as the standard names them."""

    antialias: int = 0
    axes: Ints = None
    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    keep_aspect_ratio_policy: str = "stretch"
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"

    @property
    def crops(self) -> bool:
        """Whether a region of interest is resized."""
        return self.coordinate_transformation_mode == "tf_crop_and_resize"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """How one axis is resized."""

    old: int
    new: int
    scale: float
    region: tuple[float, float] | None
    """The region of interest along this axis, as shares of its length."""


class Resize(OpRun):
    """The evaluator sizes the output in float64 (0.7 of 10 is 6 there and 7 everywhere else) and mixes float32 into cubic weights."""

    def _run(
        self,
        x: Array,
        roi: Array | None = None,
        scales: Array | None = None,
        sizes: Array | None = None,
        **attributes: Any,
    ) -> tuple[Array]:
        return (_resize(x, roi, scales, sizes, attribute_reader.read(_Attributes, attributes)),)


class ScaledResize(OpRun):
    """Upsample and the Resize of opset 10: the evaluator knows only whole factors of the nearest pixel."""

    op_schema = onnx.defs.get_schema("Resize", 10)

    def _run(
        self,
        x: Array,
        scales: Array | None = None,
        *_inputs: Any,
        mode: str = "nearest",
        **_: Any,
    ) -> tuple[Array]:
        attributes = _Attributes(
            mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        return (_resize(x, None, scales, None, attributes),)


def _resize(
    x: Array,
    roi: Array | None,
    scales: Array | None,
    sizes: Array | None,
    attributes: _Attributes,
) -> Array:
    """Axis by axis; one that keeps its size, and is not cropped, stays as it is."""
    chosen = [axis % x.ndim for axis in attributes.axes or range(x.ndim)]
    shape = [x.shape[axis] for axis in chosen]
    lengths, factors = _lengths_and_factors(
        shape,
        scales,
        sizes,
        attributes.keep_aspect_ratio_policy,
    )
    regions = _regions(roi, len(chosen))
    is_integer = x.dtype.kind in "iu"
    out = x.astype(np.promote_types(x.dtype, np.float64 if is_integer else np.float32), copy=False)
    for place, axis in enumerate(chosen):
        resized = _Axis(
            old=shape[place],
            new=lengths[place],
            scale=factors[place],
            region=regions[place],
        )
        keeps_size = resized.new == resized.old and resized.scale == 1.0
        if keeps_size and (resized.region is None or not attributes.crops):
            continue
        out = _resize_axis(out, axis, resized, attributes)
    if is_integer:
        return np.asarray(onnx.numpy_helper.saturate_cast(np.rint(out), x.dtype))
    return np.asarray(out.astype(x.dtype))


def _regions(roi: Array | None, count: int) -> list[tuple[float, float] | None]:
    if roi is None or not np.size(roi):
        return [None] * count
    starts, ends = np.asarray(roi, np.float64).reshape(2, -1)
    return [(float(starts[place]), float(ends[place])) for place in range(count)]


def _resize_axis(
    out: Array,
    axis: int,
    resized: _Axis,
    attributes: _Attributes,
) -> Array:
    coordinates = _coordinates(attributes.coordinate_transformation_mode, resized)
    matrix = _weights(coordinates, resized, attributes).astype(out.dtype, copy=False)
    out = np.moveaxis(np.tensordot(out, matrix, axes=(axis, 1)), -1, axis)
    if attributes.crops:
        outside = (coordinates < 0) | (coordinates > resized.old - 1)
        np.moveaxis(out, axis, 0)[outside] = attributes.extrapolation_value
    return out


def _lengths_and_factors(
    shape: Sequence[int],
    scales: Array | None,
    sizes: Array | None,
    policy: str,
) -> tuple[list[int], list[float]]:
    """Lengths and factors of the axes. Runtimes multiply in float32, and one pixel more or less is another shape."""
    if sizes is None or not np.size(sizes):
        assert scales is not None
        factors = [float(scale) for scale in np.asarray(scales).reshape(-1)]
        lengths = [
            int(np.floor(np.float32(n) * np.float32(factor)))
            for n, factor in zip(shape, factors, strict=True)
        ]
        return lengths, factors
    lengths = [int(n) for n in np.asarray(sizes).reshape(-1)]
    factors = [new / old if old else 1.0 for new, old in zip(lengths, shape, strict=True)]
    if policy == "stretch":
        return lengths, factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [int(factor * n + 0.5) for n in shape], [factor] * len(shape)


def _coordinates(mode: str, axis: _Axis) -> Array:
    """Where each pixel of the output lies in the input."""
    old, new, scale = axis.old, axis.new, axis.scale
    x = np.arange(new, dtype=np.float64)
    if mode == "align_corners":
        return x * (old - 1) / (new - 1) if new > 1 else np.zeros(new)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = axis.region or (0.0, 1.0)
        if new == 1:
            return np.full(1, 0.5 * (start + end) * (old - 1))
        return start * (old - 1) + x * (end - start) * (old - 1) / (new - 1)
    if mode == "pytorch_half_pixel" and new == 1:
        return np.zeros(1)
    offset = 0.0
    if mode == "half_pixel_symmetric":
        offset = old / 2 * (1 - new / (scale * old))
    return offset + (x + 0.5) / scale - 0.5


def _weights(coordinates: Array, axis: _Axis, attributes: _Attributes) -> Array:
    """The weight of each input pixel for each output pixel, as a matrix."""
    size, count = axis.old, coordinates.size
    matrix = np.zeros((count, size))
    if attributes.mode == "nearest":
        nearest = _ROUNDINGS[attributes.nearest_mode](coordinates)
        matrix[np.arange(count), np.clip(nearest, 0, size - 1).astype(np.int64)] = 1.0
        return matrix
    is_cubic = attributes.mode == "cubic"
    shrink = min(axis.scale, 1.0) if attributes.antialias else 1.0
    reach = math.ceil((2 if is_cubic else 1) / shrink)
    index = np.floor(coordinates).astype(np.int64)[:, None] + np.arange(-reach, reach + 2)
    distance = np.abs(index - coordinates[:, None]) * shrink
    if is_cubic:
        weight = cubic(distance, attributes.cubic_coeff_a)
    else:
        weight = np.clip(1.0 - distance, 0.0, None)
    if attributes.exclude_outside:
        weight = np.where((index < 0) | (index >= size), 0.0, weight)
    if attributes.exclude_outside or attributes.antialias:
        weight = weight / weight.sum(axis=1, keepdims=True)
    np.add.at(matrix, (np.arange(count)[:, None], np.clip(index, 0, size - 1)), weight)
    return matrix


_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def cubic(distance: Array, a: float) -> Array:
    """Keys' cubic convolution kernel."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))
