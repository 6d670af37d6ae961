"""How a tensor was computed from a raw image: found by computing it again in every usual way."""

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
"""Rows of the tensor that are computed in every way; the way that fits is then computed for all rows. Not measured."""
_EXACT = 2e-3
"""Largest difference of float32 arithmetic, in levels of 255."""
_ROUNDED_MEAN, _ROUNDED_MAX = 0.6, 3.0
"""Root mean square and largest difference, in levels, of values that are rounded on the way. Not measured."""
_EXACT_TOLERANCE, _ROUNDED_TOLERANCE = 2e-4, 1e-2
"""Relative, of a factor that was fitted without rounding and with it. Not measured."""
_MIN_SIDE = 8
"""Height and width below which nothing is taken for an image. Not measured."""
_ROUND = "rounds to whole levels"
_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "": lambda x: x,
    _ROUND: lambda x: np.clip(np.rint(x), 0, 255),
    "cuts off to whole levels": lambda x: np.clip(np.floor(x + 1e-6), 0, 255),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The steps that compute a tensor from a raw image."""

    geometry: Geometry
    mode: str
    reversed: bool
    rounding: str
    factor: Array
    shift: Array
    residual: float
    """The unexplained difference: the largest one, in levels, or the mean one if values are rounded on the way."""

    @property
    def affine(self) -> norms.AffineMap:
        """Factor and shift of each channel."""
        return self.factor, self.shift

    def compute(
        self,
        image: Array,
        shape: tuple[int, int],
    ) -> Array:
        """The whole tensor, height, width and channels, by these steps."""
        resized = self.geometry.apply(image, self.mode, shape, np.arange(shape[0]))
        rounded = _ROUNDINGS[self.rounding](_ordered(resized, reverse=self.reversed))
        return affine.scale_channels(rounded, self.factor, self.shift, 2)


def explain_images(
    raw: Any,
    own: Array,
    deployed: Array,
) -> Explanation | None:
    """The steps in which two tensors of one raw image differ, and the residual; None if one of them is computed in no usual way."""
    image = read_pixels(raw)
    if image is None:
        return None
    own_recipe = find_recipe(image, own)
    deployed_recipe = find_recipe(image, deployed)
    if own_recipe is None or deployed_recipe is None:
        return None
    description = "; ".join(_differences(own_recipe, deployed_recipe))
    if not description:
        return None
    residual = deployed_recipe.residual / 255
    return Explanation(description=description, residual=residual, proven=True)


def _differences(own: Recipe, deployed: Recipe) -> Iterator[str]:
    if own.geometry.name != deployed.geometry.name:
        yield f"the deployment {deployed.geometry.name}, the model's own {own.geometry.name}"
    if own.mode != deployed.mode and own.geometry.resizes and deployed.geometry.resizes:
        yield f"the deployment resizes {deployed.mode}, the model's own {own.mode}"
    if own.reversed != deployed.reversed:
        yield "the channels are reversed (RGB and BGR)"
    if own.rounding != deployed.rounding:
        own_rounding = own.rounding or "does not round"
        deployed_rounding = deployed.rounding or "does not round"
        yield f"the deployment {deployed_rounding} after it resizes, the model's own {own_rounding}"
    tolerance = _EXACT_TOLERANCE
    if max(own.residual, deployed.residual) > _EXACT:
        tolerance = _ROUNDED_TOLERANCE
    if not _same_scaling(own, deployed, tolerance):
        own_scaling = _name_scaling(own, tolerance)
        deployed_scaling = _name_scaling(deployed, tolerance)
        yield f"another scale, mean or standard deviation: the deployment has {deployed_scaling}, the model's own {own_scaling}"


def _same_scaling(
    own: Recipe,
    deployed: Recipe,
    tolerance: float,
) -> bool:
    """Whether the constants are the same, in the same order of channels or in the reversed one."""
    if norms.same_map(own.affine, deployed.affine, tolerance):
        return True
    if own.reversed == deployed.reversed:
        return False
    reversed_map = (own.factor[::-1], own.shift[::-1])
    return norms.same_map(reversed_map, deployed.affine, tolerance)


def _name_scaling(recipe: Recipe, tolerance: float) -> str:
    """The name of the usual norm that scales raw values like this, or the numbers."""
    channels = len(recipe.factor)
    for norm in norms.IMAGES:
        if norm.fits(channels) and norms.same_map(recipe.affine, norm.affine(channels), tolerance):
            return norm.name
    factor = np.round(recipe.factor, 4).tolist()
    shift = np.round(recipe.shift, 4).tolist()
    return f"factor {factor}, shift {shift}"


def find_recipe(image: Array, tensor: Array) -> Recipe | None:
    """The usual steps that compute this tensor from this image, if there are any.

    1. Every geometry in every mode computes a few rows of the tensor; the smallest residual wins.
    2. After an exact fit, only the first mode of each further geometry is tried.
    3. The winner must explain all rows.
    """
    target = _channels_last(tensor.astype(np.float64), image.shape[2])
    if target is None or target.shape[:2] == image.shape[:2] or min(target.shape[:2]) < _MIN_SIDE:
        return None
    shape = (target.shape[0], target.shape[1])
    rows = np.unique(np.linspace(0, shape[0] - 1, _ROWS).astype(int))
    best: Recipe | None = None
    for geometry in geometries((image.shape[0], image.shape[1]), shape):
        for mode in _modes(geometry):  # step 1
            resized = geometry.apply(image, mode, shape, rows)
            best = _better(best, _fit_scaling(geometry, mode, resized, target[rows]))
            if best is not None and best.residual <= _EXACT:  # step 2
                break
    if best is None:
        return None
    residual = _residual(best.compute(image, shape), target, best.factor)
    if residual is None:  # step 3
        return None
    return best


def _modes(geometry: Geometry) -> tuple[str, ...]:
    if geometry.resizes:
        return tuple(MODES)
    return ("nearest",)


def _better(first: Recipe | None, second: Recipe | None) -> Recipe | None:
    """The recipe with the smaller residual; the first one of two equals."""
    if first is None:
        return second
    if second is None or first.residual <= second.residual:
        return first
    return second


def _fit_scaling(
    geometry: Geometry,
    mode: str,
    resized: Array,
    target: Array,
) -> Recipe | None:
    """The order of channels, the rounding and the affine map that bring a resized image closest to the target."""
    best: Recipe | None = None
    orders = (False, True) if resized.shape[2] > 1 else (False,)
    for reverse in orders:
        for rounding, function in _ROUNDINGS.items():
            rounded = function(_ordered(resized, reverse=reverse))
            scales = affine.fit_channels(rounded, target, 2)
            if scales is None or not scales[0].all():
                continue
            factor, shift = scales
            scaled = affine.scale_channels(rounded, factor, shift, 2)
            residual = _residual(scaled, target, factor)
            if residual is None:
                continue
            recipe = Recipe(
                geometry=geometry,
                mode=mode,
                reversed=reverse,
                rounding=rounding if residual <= _EXACT else _ROUND,
                factor=factor,
                shift=shift,
                residual=residual,
            )
            best = _better(best, recipe)
            if residual <= _EXACT:
                return best
    return best


def _ordered(image: Array, *, reverse: bool) -> Array:
    if reverse:
        return image[..., ::-1]
    return image


def _residual(
    computed: Array,
    target: Array,
    factor: Array,
) -> float | None:
    """The largest difference if it is that of arithmetic, else the mean one; None if rounding does not explain it."""
    difference = np.abs(computed - target) / np.abs(factor)
    largest = float(difference.max())
    mean = float(np.sqrt((difference**2).mean()))
    if largest <= _EXACT:
        return largest
    if mean <= _ROUNDED_MEAN and largest <= _ROUNDED_MAX:
        return max(mean, _EXACT * 1.01)
    return None


def read_pixels(raw: Any) -> Array | None:
    """The raw image with its channels last and values of 0 to 255, or None if it is not an image that can be read."""
    array = _as_array(raw)
    if array is None or array.dtype.kind not in "uif" or array.size == 0:
        return None
    image = _as_image(array.astype(np.float64))
    if image is None or min(image.shape[:2]) < _MIN_SIDE:
        return None
    if image.min() < 0 or image.max() > 255:
        return None
    if array.dtype.kind == "f" and image.max() <= 1:
        return image * 255
    return image


def _as_array(raw: Any) -> Array | None:
    if isinstance(raw, str):
        raw = _load_image(raw)
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    if hasattr(raw, "__array__") or hasattr(raw, "__array_interface__"):
        return np.asarray(raw)
    return None


def _load_image(path: str) -> Any:
    try:
        if path.endswith(".npy"):
            return read_arrays(Path(path))[""]
        from PIL import Image

        with Image.open(require_regular(path)) as image:
            return np.asarray(image.convert("RGB"))
    except (ImportError, OSError, ValueError):
        return None


def _as_image(array: Array) -> Array | None:
    """The array as an image of 3, 1 or 4 channels, whichever fits first."""
    for channels in (3, 1, 4):
        image = _channels_last(array, channels)
        if image is not None:
            return image
    return None


def _channels_last(array: Array, channels: int) -> Array | None:
    """One image of a batch, as height, width and channels."""
    while array.ndim > 3:
        array = array[0]
    if array.ndim == 2 and channels == 1:
        return array[..., None]
    if array.ndim != 3:
        return None
    if array.shape[2] == channels:
        return array
    if array.shape[0] == channels:
        return array.transpose(1, 2, 0)
    return None
