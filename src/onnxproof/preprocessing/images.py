"""How a tensor was made of a raw image: found by making it again in every usual way."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.numerics.array_files import read_arrays
from onnxproof.preprocessing import affine, norms
from onnxproof.preprocessing.mistake import Explanation
from onnxproof.preprocessing.resizing import MODES, Geometry, geometries
from onnxproof.system.user_files import require_regular

Array = np.ndarray[Any, Any]
_ROWS = 16
"""Rows of the result that are made in every way; the way that fits is made whole."""
_EXACT, _ROUNDED, _MOST_ROUNDED = 2e-3, 0.6, 3.0
"""Differences in levels of 255: the largest of float32 arithmetic; in the mean and at most of values that are rounded on the way."""
_FINE, _ROUGH = 2e-4, 1e-2
"""Of a factor, as it is found without rounding and with it."""
_LEAST_SIDE = 8
_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    "rounds to whole levels": lambda x: np.clip(np.rint(x), 0, 255),
    "cuts off to whole levels": lambda x: np.clip(np.floor(x + 1e-6), 0, 255),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The steps that make a tensor of a raw image."""

    geometry: Geometry
    mode: str
    reversed: bool
    rounding: str
    factor: Array
    shift: Array
    left: float
    """What is left unexplained: the largest difference, in levels, or the mean one where values are rounded on the way."""


def difference(raw: Any, want: Array, got: Array) -> Explanation | None:
    """In which steps two tensors that were made of one raw image differ, and what is left of it; None where either is made in no usual way."""
    image = pixels(raw)
    own, theirs = (recipe(image, tensor) if image is not None else None for tensor in (want, got))
    words = "; ".join(_steps(own, theirs)) if own is not None and theirs is not None else ""
    return (
        Explanation(what=words, left=theirs.left / 255, sure=True)
        if words and theirs is not None
        else None
    )


def _steps(own: Recipe, theirs: Recipe) -> Iterator[str]:
    if own.geometry.name != theirs.geometry.name:
        yield f"the deployment {theirs.geometry.name}, the model's own {own.geometry.name}"
    if own.mode != theirs.mode and _resizes(own) and _resizes(theirs):
        yield f"the deployment resizes {theirs.mode}, the model's own {own.mode}"
    if own.reversed != theirs.reversed:
        yield "the channels are reversed (RGB and BGR)"
    if own.rounding != theirs.rounding:
        yield f"the deployment {theirs.rounding or 'does not round'} after it resizes, the model's own {own.rounding or 'does not round'}"
    order = slice(None, None, -1 if own.reversed != theirs.reversed else 1)
    within = _ROUGH if max(own.left, theirs.left) > _EXACT else _FINE
    if not any(
        norms.alike(scales, (theirs.factor, theirs.shift), within)
        for scales in ((own.factor[order], own.shift[order]), (own.factor, own.shift))
    ):
        yield f"another scale, mean or standard deviation: the deployment has {_scaling(theirs, within)}, the model's own {_scaling(own, within)}"


def _scaling(made: Recipe, within: float) -> str:
    """The name of what is done to raw values, or the numbers."""
    own, channels = (made.factor, made.shift), len(made.factor)
    numbers = (
        f"factor {np.round(made.factor, 4).tolist()}, shift {np.round(made.shift, 4).tolist()}"
    )
    return next(
        (
            norm.name
            for norm in norms.IMAGES
            if norm.fits(channels) and norms.alike(own, norm.affine(channels), within)
        ),
        numbers,
    )


def _resizes(made: Recipe) -> bool:
    return made.geometry.size != made.geometry.source[2:]


def recipe(image: Array, tensor: Array) -> Recipe | None:
    """The usual steps that make this tensor of this image, if some do."""
    made = _channels_last(tensor.astype(np.float64), image.shape[2])
    if made is None or made.shape[:2] == image.shape[:2] or min(made.shape[:2]) < _LEAST_SIDE:
        return None
    shape, best = (made.shape[0], made.shape[1]), None
    rows = np.unique(np.linspace(0, shape[0] - 1, _ROWS).astype(int))
    for geometry in geometries((image.shape[0], image.shape[1]), shape):
        for mode in MODES if geometry.size != geometry.source[2:] else ("nearest",):
            found = _fit(geometry, mode, geometry.make(image, mode, shape, rows), made[rows])
            if found is not None and (best is None or found.left < best.left):
                best = found
            if best is not None and best.left <= _EXACT:
                break
    return best if best is None or _whole(image, best, made) else None


def _fit(geometry: Geometry, mode: str, ours: Array, tensor: Array) -> Recipe | None:
    best = None
    for reverse in (False, True) if ours.shape[2] > 1 else (False,):
        for words, rounded in _ROUNDINGS.items():
            x = rounded(ours[..., ::-1] if reverse else ours)
            scales = affine.by_channel(x, tensor, 2)
            if scales is None or not scales[0].all():
                continue
            left = _left(affine.applied(x, *scales, 2), tensor, scales[0])
            if left is not None and (best is None or left < best.left):
                best = Recipe(
                    geometry=geometry,
                    mode=mode,
                    reversed=reverse,
                    rounding=words if left <= _EXACT else "rounds to whole levels",
                    factor=scales[0],
                    shift=scales[1],
                    left=left,
                )
            if left is not None and left <= _EXACT:
                return best
    return best


def _left(made: Array, tensor: Array, factor: Array) -> float | None:
    """The largest difference where it is that of arithmetic, else the mean one; None where rounding does not explain it."""
    off = np.abs(made - tensor) / np.abs(factor)
    most, mean = float(off.max()), float(np.sqrt((off**2).mean()))
    return (
        most
        if most <= _EXACT
        else max(mean, _EXACT * 1.01)
        if mean <= _ROUNDED and most <= _MOST_ROUNDED
        else None
    )


def _whole(image: Array, found: Recipe, tensor: Array) -> bool:
    made = found.geometry.make(
        image, found.mode, (tensor.shape[0], tensor.shape[1]), np.arange(tensor.shape[0])
    )
    made = _ROUNDINGS[found.rounding](made[..., ::-1] if found.reversed else made)
    return (
        _left(affine.applied(made, found.factor, found.shift, 2), tensor, found.factor) is not None
    )


def pixels(raw: Any) -> Array | None:
    """The raw image with its channels last and values of 0 to 255, or None where it is not one that can be read."""
    if isinstance(raw, str):
        raw = _opened(raw)
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    array = (
        np.asarray(raw)
        if hasattr(raw, "__array__") or hasattr(raw, "__array_interface__")
        else None
    )
    if array is None or array.dtype.kind not in "uif" or array.size == 0:
        return None
    image = next(
        (
            made
            for channels in (3, 1, 4)
            if (made := _channels_last(array.astype(np.float64), channels)) is not None
        ),
        None,
    )
    if image is None or min(image.shape[:2]) < _LEAST_SIDE or image.min() < 0 or image.max() > 255:
        return None
    return image * 255 if array.dtype.kind == "f" and image.max() <= 1 else image


def _opened(path: str) -> Any:
    try:
        if path.endswith(".npy"):
            return read_arrays(Path(path))[""]
        from PIL import Image

        with Image.open(require_regular(path)) as image:
            return np.asarray(image.convert("RGB"))
    except (ImportError, OSError, ValueError):
        return None


def _channels_last(array: Array, channels: int) -> Array | None:
    """One image of a batch, as height, width and channels."""
    while array.ndim > 3:
        array = array[0]
    if array.ndim == 2 and channels == 1:
        return array[..., None]
    if array.ndim != 3:
        return None
    return (
        array
        if array.shape[2] == channels
        else array.transpose(1, 2, 0)
        if array.shape[0] == channels
        else None
    )
