"""GridSample and AffineGrid, in whole-array numpy."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator.resizing import cubic

Array = np.ndarray[Any, Any]
_CUBIC_A = -0.75
"""The coefficient of the cubic kernel that the standard gives GridSample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Border:
    """What lies beyond the image."""

    padding_mode: str
    align_corners: int

    def bring_inside(self, coordinates: Array, size: int) -> Array:
        """Coordinates brought into the image: clamped, or reflected at its edge."""
        if self.padding_mode == "border":
            return np.clip(coordinates, 0, size - 1)
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        if high <= low:
            return np.zeros_like(coordinates)
        length = high - low
        folded = np.abs(coordinates - low) % (2 * length)
        reflected = np.where(folded > length, 2 * length - folded, folded)
        return np.clip(reflected + low, 0, size - 1)


class GridSample(OpRun):
    """The evaluator holds coordinates in float32, clamps before a cubic window instead of within it, and loops in Python."""

    def _run(
        self,
        x: Array,
        grid: Array,
        mode: str = "linear",
        padding_mode: str = "zeros",
        align_corners: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
        border = _Border(padding_mode=padding_mode, align_corners=align_corners)
        coordinates = _pixel_coordinates(grid.astype(wide.dtype), x.shape[2:], align_corners)
        if "cubic" not in mode and padding_mode != "zeros":
            coordinates = [
                np.clip(border.bring_inside(c, size), 0, size - 1)
                for c, size in zip(coordinates, x.shape[2:], strict=True)
            ]
        out = np.zeros((x.shape[0], x.shape[1], *grid.shape[1:-1]), wide.dtype)
        taps = [_taps(c, mode) for c in coordinates]
        for corner in itertools.product(*taps):
            out += _sample(wide, corner, border)
        return (out.astype(x.dtype),)


def _sample(x: Array, corner: Sequence[tuple[Array, Array]], border: _Border) -> Array:
    """The pixels at one combination of taps, times their weights."""
    shape = corner[0][0].shape
    weight = np.ones(shape, x.dtype)
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    places: list[Array] = [batch]
    for (index, share), size in zip(corner, x.shape[2:], strict=True):
        if border.padding_mode != "zeros":
            index = border.bring_inside(index, size)
        weight = weight * np.where((index >= 0) & (index <= size - 1), share, 0)
        places.append(np.clip(index, 0, size - 1).astype(np.int64))
    picked = np.moveaxis(x, 1, -1)[tuple(places)]
    weighted = np.where(weight[..., None] == 0, 0, picked * weight[..., None])
    return np.moveaxis(weighted, -1, 1)


def _pixel_coordinates(grid: Array, shape: Sequence[int], align_corners: int) -> list[Array]:
    """The grid's coordinates between -1 and 1 as pixels, by axis of the image."""
    coordinates = []
    for axis, size in enumerate(shape):
        c = grid[..., -1 - axis]
        if align_corners:
            coordinates.append((c + 1) / 2 * (size - 1))
        else:
            coordinates.append(((c + 1) * size - 1) / 2)
    return coordinates


def _taps(c: Array, mode: str) -> list[tuple[Array, Array]]:
    """Pixels and their weights along one axis."""
    if mode == "nearest":
        return [(np.rint(c), np.ones_like(c))]
    base = np.floor(c)
    if "cubic" in mode:
        return [(base + k, cubic(np.abs(base + k - c), _CUBIC_A)) for k in (-1, 0, 1, 2)]
    return [(base, base + 1 - c), (base + 1, c - base)]


class AffineGrid(OpRun):
    """The evaluator answers in float32."""

    def _run(
        self,
        theta: Array,
        size: Array,
        align_corners: int = 0,
        **_: Any,
    ) -> tuple[Array]:
        lengths = [int(n) for n in size[2:]]
        mesh = np.meshgrid(*(_centres(n, align_corners) for n in lengths), indexing="ij")
        homogeneous = np.stack([*mesh[::-1], np.ones(lengths)], axis=-1)
        homogeneous = homogeneous.astype(np.promote_types(theta.dtype, np.float32))
        return (np.einsum("...j,nij->n...i", homogeneous, theta).astype(theta.dtype),)


def _centres(size: int, align_corners: int) -> Array:
    """Where the pixels of an axis lie between -1 and 1."""
    if not align_corners:
        return np.asarray((np.arange(size) * 2 + 1) / size - 1)
    if size > 1:
        return np.linspace(-1, 1, size)
    return np.zeros(size)
