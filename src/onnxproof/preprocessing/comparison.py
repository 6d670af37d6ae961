"""Which mistake explains that two preprocessings differ: each usual one is tried."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from onnxproof.preprocessing import affine, images, norms, sounds, texts
from onnxproof.preprocessing.mistake import (
    Explanation,
    Mistake,
    TensorPair,
    has_floats,
    largest_magnitude,
    max_difference,
    nearly_equal,
)

Array = np.ndarray[Any, Any]
_MAX_AXES = 5
"""Axes whose 120 orders are all tried; a sixth would make it 720."""
_MAX_CHANNELS = 4
"""An axis of at most this size may hold channels."""
_MIN_VALUES, _MIN_LEVELS, _MAX_LEVELS = 16, 5, 300
"""Of a channel that may be rounded: fewer lie on a grid by chance, and a byte has 256 levels. Not measured."""
_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "rounds": np.rint,
    "cuts off": lambda x: np.floor(x + 1e-4),
}


def explain(pair: TensorPair) -> Explanation:
    """The first mistake with which the model's own preprocessing computes what the deployment computes.

    1. Both tensors must hold finite numbers.
    2. Order of values, texts, raw channels, scales and rounding: cheap, and each is reproduced exactly.
    3. Images, if there is one raw input: every usual way to resize it.
    4. Sounds last: their curves and shifts fit other tensors by chance most easily.
    """
    if not _is_comparable(pair.own) or not _is_comparable(pair.deployed):  # step 1
        return Explanation()
    usual = itertools.chain(
        _orders(pair),
        texts.mistakes(pair),
        _raw_channels(pair),
        _scales(pair),
        _roundings(pair),
    )
    explanation = _first_match(pair, usual)  # step 2
    if explanation is None and len(pair.raw) == 1:  # step 3
        explanation = images.explain_images(pair.raw[0], pair.own, pair.deployed)
    if explanation is None:  # step 4
        explanation = _first_match(pair, sounds.mistakes(pair))
    return explanation or Explanation()


def _is_comparable(array: Array) -> bool:
    return bool(array.size and array.dtype.kind in "iufb" and np.isfinite(array).all())


def _first_match(pair: TensorPair, mistakes: Iterable[Mistake]) -> Explanation | None:
    for mistake in mistakes:
        target = pair.deployed if mistake.target is None else mistake.target
        if nearly_equal(mistake.result, target):
            residual = max_difference(mistake.result, target) / largest_magnitude(target)
            return Explanation(
                description=mistake.description,
                residual=residual,
                proven=mistake.proven,
            )
    return None


def _orders(pair: TensorPair) -> Iterator[Mistake]:
    """The same values in another order: an axis reversed, or the axes exchanged."""
    own = pair.own
    if own.dtype.kind != "i":
        for axis, size in enumerate(own.shape):
            description = f"axis {axis} runs the other way"
            if size in (3, 4):
                description = "the channels are reversed (RGB and BGR)"
            yield Mistake(description=description, result=np.flip(own, axis))
    if not 1 < own.ndim <= _MAX_AXES:
        return
    all_orders = itertools.permutations(range(own.ndim))
    next(all_orders)  # the order that they have
    for axes in all_orders:
        exchanged = own.transpose(axes)
        if exchanged.shape == pair.deployed.shape:
            description = f"the layout is {axes}"
            if own.shape == pair.deployed.shape:
                description = f"the axes are exchanged: {axes}"
            yield Mistake(description=description, result=exchanged)


def _scales(pair: TensorPair) -> Iterator[Mistake]:
    """A factor and a shift: for all values, for each channel, or for each item of a batch; then with the channels reversed."""
    own = pair.own
    if own.shape != pair.deployed.shape or not has_floats(own, pair.deployed):
        return
    channel_axes = _channel_axes(own)
    yield from _fitted_scale(own, pair.deployed, None)
    for axis in channel_axes:
        yield from _fitted_scale(own, pair.deployed, axis)
    if own.ndim > 1 and 0 not in channel_axes:
        yield from _fitted_scale(own, pair.deployed, 0)
    for axis in channel_axes:
        for mistake in _fitted_scale(np.flip(own, axis), pair.deployed, axis):
            yield Mistake(
                description=f"{mistake.description} in the other order of channels",
                result=mistake.result,
            )


def _channel_axes(array: Array) -> list[int]:
    return [axis for axis, size in enumerate(array.shape) if 1 < size <= _MAX_CHANNELS]


def _fitted_scale(
    own: Array,
    deployed: Array,
    axis: int | None,
) -> Iterator[Mistake]:
    """The factor and the shift of each channel that fit best; without an axis, all values are one channel."""
    shape = deployed.shape
    if axis is None:
        own = own[None]
        deployed = deployed[None]
        axis = 0
    scales = affine.fit_channels(own, deployed, axis)
    if scales is None:
        return
    factor, shift = scales
    numbers = f"factor {np.round(factor, 4).tolist()}, shift {np.round(shift, 4).tolist()}"
    name = _name_norms(own, factor, shift) or _name_statistics(own, factor, shift, axis)
    scaled = affine.scale_channels(own.astype(np.float64), factor, shift, axis)
    yield Mistake(
        description=f"another scale, mean or standard deviation: {numbers}{name}",
        result=scaled.reshape(shape),
    )


def _name_norms(
    own: Array,
    factor: Array,
    shift: Array,
) -> str:
    """Which usual norm is in the place of which, in words; empty if none is."""
    channels = len(factor)
    known = norms.USUAL
    if own.ndim > 4 or channels > 1:  # all values at once have one axis more: a batch of images
        known = norms.IMAGES
    for own_norm, other in norms.norm_pairs(known, channels):
        if norms.same_map((factor, shift), norms.result_map(own_norm, other, channels)):
            return f" ({other.name} in the place of {own_norm.name})"
    return ""


def _name_statistics(
    own: Array,
    factor: Array,
    shift: Array,
    axis: int,
) -> str:
    """The statistic of the values themselves that they are divided by, in words; empty if none is."""
    rows = affine.channel_rows(own, axis)
    if not (np.abs(shift) > 1e-6 * largest_magnitude(own)).any():
        if np.allclose(factor * np.abs(rows).max(1), 1, rtol=1e-4):
            return " (normalised by the peak)"
        if np.allclose(factor * np.sqrt((rows**2).mean(1)), 1, rtol=1e-4):
            return " (normalised by the root of the mean square)"
    unit_spread = np.allclose(factor * rows.std(1), 1, rtol=1e-3)
    if unit_spread and np.allclose(shift, -factor * rows.mean(1), rtol=1e-3):
        return " (normalised to a mean of 0 and a spread of 1)"
    return ""


def _raw_channels(pair: TensorPair) -> Iterator[Mistake]:
    """The model's own preprocessing on raw data with its channels reversed."""
    raw = pair.raw_array
    if raw is None:
        return
    for axis in (-1, -3):
        if raw.ndim >= -axis and raw.shape[axis] in (3, 4):
            order = [2, 1, 0, 3][: raw.shape[axis]]  # a fourth channel is alpha
            reordered = np.ascontiguousarray(np.take(raw, order, axis))
            yield Mistake(
                description="the channels of the raw input are reversed (RGB and BGR)",
                result=pair.run_own(reordered),
            )
            return


def _roundings(pair: TensorPair) -> Iterator[Mistake]:
    """One side lies on a grid of even steps, and the other would if its values were rounded."""
    if pair.own.shape != pair.deployed.shape or not has_floats(pair.own, pair.deployed):
        return
    for side, rounded, unrounded in (
        ("the deployment", pair.deployed, pair.own),
        ("the model's own", pair.own, pair.deployed),
    ):
        for axis in (None, *_channel_axes(rounded)):
            for verb, function in _ROUNDINGS.items():
                result = _round_to_grid(unrounded, rounded, axis, function)
                if result is not None:
                    yield Mistake(
                        description=f"{side} {verb} to whole steps (as of uint8), the other does not",
                        result=result,
                        target=rounded,
                    )


def _round_to_grid(
    values: Array,
    grid_values: Array,
    axis: int | None,
    function: Callable[[Array], Array],
) -> Array | None:
    """The values rounded to the grid of the others, channel by channel; None if those lie on no grid."""
    if axis is None:
        whole = _round_to_grid(values[None], grid_values[None], 0, function)
        return None if whole is None else whole[0]
    rows = affine.channel_rows(values, axis)
    rounded = np.empty_like(rows)
    for channel, on_grid in enumerate(affine.channel_rows(grid_values, axis)):
        grid = _find_grid(on_grid)
        if grid is None:
            return None
        start, step = grid
        rounded[channel] = function((rows[channel] - start) / step) * step + start
    moved_shape = np.moveaxis(values, axis, 0).shape
    return np.moveaxis(rounded.reshape(moved_shape), 0, axis)


def _find_grid(values: Array) -> tuple[float, float] | None:
    """The smallest value and the step of the even grid that the values lie on, or None."""
    levels = np.unique(values)
    if len(values) < _MIN_VALUES or not _MIN_LEVELS <= len(levels) <= _MAX_LEVELS:
        return None
    steps = np.diff(levels)
    steps = steps[steps > 1e-6 * largest_magnitude(values)]
    if not steps.size:
        return None
    step = float(np.median(steps))
    places = (levels - levels[0]) / step
    if np.abs(places - np.rint(places)).max() > 1e-2:
        return None
    return levels[0], step
