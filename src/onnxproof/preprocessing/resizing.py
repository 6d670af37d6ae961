"""How libraries resize an image, each mode as a matrix for one axis, and the usual ways to crop and pad."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array], Array]
_SHORTER_SIDES = (1.0, 256 / 224, 1 / 0.9, 1 / 0.95)
"""The shorter side before a crop, in sides of the crop: that of ImageNet's evaluation and of its successors."""
_PAD_VALUES = (0.0, 114.0, 128.0, 127.5, 255.0)
"""What the usual pipelines put around an image: black, the grey of YOLO, two other greys, white."""


def _triangle(x: Array) -> Array:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _box(x: Array) -> Array:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _cubic(a: float) -> Kernel:
    def kernel(x: Array) -> Array:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0.0))

    return kernel


def _lanczos(x: Array) -> Array:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way of resizing: the kernel (none for the nearest pixel), and how the pixels of both sizes correspond."""

    kernel: Kernel | None = None
    support: float = 0.0
    """Pixels that the kernel reaches to each side."""
    antialias: bool = False
    """Whether the kernel widens when the image shrinks."""
    coordinates: str = "half-pixel"
    """Where the centres of pixels are: half-pixel, asymmetric or corners."""


MODES: dict[str, Mode] = {
    "nearest": Mode(coordinates="asymmetric"),
    "nearest to the middle of each pixel": Mode(),
    "bilinear": Mode(kernel=_triangle, support=1.0),
    "bilinear with aligned corners": Mode(kernel=_triangle, support=1.0, coordinates="corners"),
    "bilinear from the corner of each pixel": Mode(
        kernel=_triangle,
        support=1.0,
        coordinates="asymmetric",
    ),
    "bilinear with antialiasing": Mode(kernel=_triangle, support=1.0, antialias=True),
    "bicubic": Mode(kernel=_cubic(-0.75), support=2.0),
    "bicubic with antialiasing": Mode(kernel=_cubic(-0.5), support=2.0, antialias=True),
    "by the mean of the area": Mode(kernel=_box, support=0.5, antialias=True),
    "Lanczos": Mode(kernel=_lanczos, support=3.0, antialias=True),
}


@functools.lru_cache(maxsize=128)
def resize_matrix(
    before: int,
    after: int,
    mode_name: str,
) -> Array:
    """The share of each old pixel in each new one: rows add up to one."""
    mode = MODES[mode_name]
    centres = _source_centres(before, after, mode.coordinates)
    old = np.arange(before)[None]
    if mode.kernel is None:
        offset = 0.5 if mode.coordinates == "half-pixel" else 1e-9
        nearest = np.clip(np.floor(centres + offset), 0, before - 1)
        return np.asarray(old == nearest, np.float64)
    if mode.antialias:  # pixels outside of the image are left out
        width = max(before / after, 1.0)
        shares = mode.kernel((old - centres) / width)
        return np.asarray(shares / shares.sum(1, keepdims=True))
    matrix = np.zeros((after, before))
    reach = int(mode.support)
    for tap in range(
        -reach + 1,
        reach + 1,
    ):  # pixels outside of the image repeat the one at the edge
        pixel = np.floor(centres[:, 0]) + tap
        inside = np.clip(pixel, 0, before - 1).astype(int)
        np.add.at(matrix, (np.arange(after), inside), mode.kernel(pixel - centres[:, 0]))
    return matrix


def _source_centres(
    before: int,
    after: int,
    coordinates: str,
) -> Array:
    """Where the centre of each new pixel is in the old image, as a column."""
    new = np.arange(after)[:, None]
    scale = before / after
    if coordinates == "half-pixel":
        return (new + 0.5) * scale - 0.5
    if coordinates == "asymmetric":
        return new * scale
    return new * ((before - 1) / max(after - 1, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """The part of an image that is taken, the size to which it is resized, and how that is cropped or padded."""

    name: str
    source: tuple[int, int, int, int]
    """Top, left, height and width in the raw image."""
    size: tuple[int, int]
    origin: tuple[int, int] = (0, 0)
    """Where the result begins in the resized image; negative where it is padded."""
    pad: float = 0.0

    @property
    def resizes(self) -> bool:
        """False if the part that is taken has the right size already."""
        return self.size != self.source[2:]

    def apply(
        self,
        image: Array,
        mode: str,
        shape: tuple[int, int],
        rows: Array,
    ) -> Array:
        """Some rows of the result; the image has its channels last."""
        top, left, height, width = self.source
        part = image[top : top + height, left : left + width]
        resized_rows = rows + self.origin[0]
        resized_columns = np.arange(shape[1]) + self.origin[1]
        rows_inside = (resized_rows >= 0) & (resized_rows < self.size[0])
        columns_inside = (resized_columns >= 0) & (resized_columns < self.size[1])
        by_row = resize_matrix(height, self.size[0], mode)[resized_rows[rows_inside]]
        by_column = resize_matrix(width, self.size[1], mode)[resized_columns[columns_inside]]
        result = np.full((len(rows), shape[1], image.shape[2]), self.pad)
        resized = np.tensordot(by_column, np.tensordot(by_row, part, (1, 0)), (1, 1))
        result[np.ix_(rows_inside, columns_inside)] = resized.transpose(1, 0, 2)
        return result


def geometries(before: tuple[int, int], after: tuple[int, int]) -> Iterator[Geometry]:
    """The usual ways from one size to the other."""
    whole = (0, 0, *before)
    yield Geometry(name="squashes the whole image", source=whole, size=after)
    yield from _shorter_side_crops(before, after)
    side = min(before)
    yield Geometry(
        name="cuts out the largest square and resizes that",
        source=(*_centre(before, (side, side)), side, side),
        size=after,
    )
    if before[0] >= after[0] and before[1] >= after[1]:
        yield Geometry(
            name="cuts out the centre without resizing",
            source=(*_centre(before, after), *after),
            size=after,
        )
        yield Geometry(
            name="cuts out the top left without resizing",
            source=(0, 0, *after),
            size=after,
        )
    yield from _letterboxes(before, after)


def _shorter_side_crops(before: tuple[int, int], after: tuple[int, int]) -> Iterator[Geometry]:
    """The shorter side is resized to some length, then a part of the right size is cut out."""
    height, width = before
    whole = (0, 0, height, width)
    for ratio in _SHORTER_SIDES:
        short = int(min(after) * ratio + 1e-6)
        if height <= width:
            size = (short, int(short * width / height))
        else:
            size = (int(short * height / width), short)
        if size[0] < after[0] or size[1] < after[1]:
            continue
        name = f"brings the shorter side to {short} and cuts out"
        centre = _centre(size, after)
        yield Geometry(name=f"{name} the centre", source=whole, size=size, origin=centre)
        yield Geometry(name=f"{name} the top left", source=whole, size=size)


def _letterboxes(before: tuple[int, int], after: tuple[int, int]) -> Iterator[Geometry]:
    """The image is resized with its proportions kept, then padded on both sides or at the end."""
    whole = (0, 0, *before)
    ratio = min(after[0] / before[0], after[1] / before[1])
    size = (round(before[0] * ratio), round(before[1] * ratio))
    if size == after or min(size) <= 0:
        return
    origin = (-((after[0] - size[0]) // 2), -((after[1] - size[1]) // 2))
    for pad in _PAD_VALUES:
        name = f"keeps the proportions and puts {pad:g}"
        yield Geometry(name=f"{name} around", source=whole, size=size, origin=origin, pad=pad)
        yield Geometry(name=f"{name} at the end", source=whole, size=size, pad=pad)


def _centre(outer: tuple[int, int], inner: tuple[int, int]) -> tuple[int, int]:
    return round((outer[0] - inner[0]) / 2), round((outer[1] - inner[1]) / 2)
