"""The ways in which libraries make an image smaller or larger, each as a matrix for one axis."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array], Array]
SHORTER = (1.0, 256 / 224, 1 / 0.9, 1 / 0.95)
"""The shorter side before a crop, in sides of the crop: that of ImageNet's evaluation and of its successors."""
_PADS = (0.0, 114.0, 128.0, 127.5, 255.0)


def _triangle(x: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _box(x: Array) -> Array:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _cubic(a: float) -> Kernel:
    def kernel(x: Array) -> Array:
        x = np.abs(x)
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    return kernel


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


MODES: dict[str, tuple[Kernel | None, float, bool, str]] = {
    "nearest": (None, 0.0, False, "asymmetric"),
    "nearest to the middle of each pixel": (None, 0.0, False, "half-pixel"),
    "bilinear": (_triangle, 1.0, False, "half-pixel"),
    "bilinear with aligned corners": (_triangle, 1.0, False, "corners"),
    "bilinear from the corner of each pixel": (_triangle, 1.0, False, "asymmetric"),
    "bilinear with antialiasing": (_triangle, 1.0, True, "half-pixel"),
    "bicubic": (_cubic(-0.75), 2.0, False, "half-pixel"),
    "bicubic with antialiasing": (_cubic(-0.5), 2.0, True, "half-pixel"),
    "by the mean of the area": (_box, 0.5, True, "half-pixel"),
    "Lanczos": (_lanczos, 3.0, True, "half-pixel"),
}
"""Kernel, its reach, whether it grows when the image shrinks, and where pixels lie."""


@functools.lru_cache(maxsize=128)
def matrix(before: int, after: int, mode: str) -> Array:
    """The share of each old pixel in each new one: rows add up to one."""
    kernel, reach, grows, lie = MODES[mode]
    scale, new, old = before / after, np.arange(after)[:, None], np.arange(before)[None]
    middle = {
        "half-pixel": (new + 0.5) * scale - 0.5,
        "asymmetric": new * scale,
        "corners": new * ((before - 1) / max(after - 1, 1)),
    }[lie]
    if kernel is None:
        chosen = np.floor(middle + 0.5 if lie == "half-pixel" else middle + 1e-9)
        return np.asarray(old == np.clip(chosen, 0, before - 1), np.float64)
    wide = max(scale, 1.0) if grows else 1.0
    if grows:  # what lies outside of the image is left out
        shares = kernel((old - middle) / wide)
        return np.asarray(shares / shares.sum(1, keepdims=True))
    made = np.zeros((after, before))
    for tap in range(-int(reach) + 1, int(reach) + 1):  # what lies outside is the pixel at the edge
        place = np.floor(middle[:, 0]) + tap
        np.add.at(
            made,
            (np.arange(after), np.clip(place, 0, before - 1).astype(int)),
            kernel(place - middle[:, 0]),
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Which part of an image is taken, to what size it is brought, and which part of that is taken, or what is put around it."""

    name: str
    source: tuple[int, int, int, int]
    """Top, left, height and width in the raw image."""
    size: tuple[int, int]
    place: tuple[int, int] = (0, 0)
    """Where the result begins in it; below zero where something is put around."""
    pad: float = 0.0

    def make(self, image: Array, mode: str, shape: tuple[int, int], rows: Array) -> Array:
        """Some rows of the result; the image has its channels last."""
        top, left, height, width = self.source
        part, (high, wide), (down, right) = (
            image[top : top + height, left : left + width],
            self.size,
            self.place,
        )
        own, columns = rows + down, np.arange(shape[1]) + right
        inside, across = (own >= 0) & (own < high), (columns >= 0) & (columns < wide)
        by_row, by_column = (
            matrix(height, high, mode)[own[inside]],
            matrix(width, wide, mode)[columns[across]],
        )
        made = np.full((len(rows), shape[1], image.shape[2]), self.pad)
        made[np.ix_(inside, across)] = np.tensordot(
            by_column, np.tensordot(by_row, part, (1, 0)), (1, 1)
        ).transpose(1, 0, 2)
        return made


def geometries(before: tuple[int, int], after: tuple[int, int]) -> Iterator[Geometry]:
    """The usual ways from one size to the other."""
    (height, width), (high, wide) = before, after
    whole = (0, 0, height, width)
    yield Geometry(name="squashes the whole image", source=whole, size=after)
    for ratio in SHORTER:
        short = int(min(high, wide) * ratio + 1e-6)
        size = (
            (short, int(short * width / height))
            if height <= width
            else (int(short * height / width), short)
        )
        if size[0] >= high and size[1] >= wide:
            yield Geometry(
                name=f"brings the shorter side to {short} and cuts out the centre",
                source=whole,
                size=size,
                place=_centre(size, after),
            )
            yield Geometry(
                name=f"brings the shorter side to {short} and cuts out the top left",
                source=whole,
                size=size,
            )
    side = min(before)
    yield Geometry(
        name="cuts out the largest square and resizes that",
        source=(*_centre(before, (side, side)), side, side),
        size=after,
    )
    if height >= high and width >= wide:
        yield Geometry(
            name="cuts out the centre without resizing",
            source=(*_centre(before, after), high, wide),
            size=after,
        )
        yield Geometry(
            name="cuts out the top left without resizing", source=(0, 0, high, wide), size=after
        )
    ratio = min(high / height, wide / width)
    size = (round(height * ratio), round(width * ratio))
    for pad in _PADS if size != after and min(size) > 0 else ():
        around = tuple(-((a - s) // 2) for a, s in zip(after, size, strict=True))
        yield Geometry(
            name=f"keeps the proportions and puts {pad:g} around",
            source=whole,
            size=size,
            place=(around[0], around[1]),
            pad=pad,
        )
        yield Geometry(
            name=f"keeps the proportions and puts {pad:g} at the end",
            source=whole,
            size=size,
            pad=pad,
        )


def _centre(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int]:
    return round((outer[0] - inner[0]) / 2), round((outer[1] - inner[1]) / 2)
