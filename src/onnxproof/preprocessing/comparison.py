"""Which slip explains that two preprocessings differ: each usual one is tried."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from onnxproof.preprocessing import affine, images, norms, sounds, texts
from onnxproof.preprocessing.mistake import Both, Explanation, Slip, same, scale_of

Array = np.ndarray[Any, Any]
_MOST_AXES = 5
_LEAST_VALUES, _LEAST_LEVELS = 16, 5
"""Of a channel that may be rounded: fewer lie on a grid by chance."""


def explain(both: Both) -> str:
    """The first slip with which the model's own preprocessing makes what the deployment makes; empty where none does."""
    return explained(both).what


def explained(both: Both) -> Explanation:
    """The same, with the relative difference that is left."""
    if not all(
        array.size and array.dtype.kind in "iufb" and np.isfinite(array).all()
        for array in (both.want, both.got)
    ):
        return Explanation()
    return (
        _first(
            both,
            itertools.chain(
                _ordered(both), texts.slips(both), _raw(both), _scaled(both), _stepped(both)
            ),
        )
        or (images.difference(both.raw[0], both.want, both.got) if len(both.raw) == 1 else None)
        or _first(both, sounds.slips(both))
        or Explanation()
    )


def _first(both: Both, slips: Iterable[Slip]) -> Explanation | None:
    for slip in slips:
        target = both.got if slip.target is None else slip.target
        if same(slip.made, target):
            left = float(
                np.abs(slip.made.astype(np.float64) - target.astype(np.float64)).max(initial=0)
            ) / scale_of(target)
            return Explanation(what=slip.what, left=left, sure=slip.sure)
    return None


def _ordered(both: Both) -> Iterator[Slip]:
    """The same values in another order."""
    want = both.want
    for axis in range(want.ndim) if want.dtype.kind != "i" else ():
        yield Slip(
            what="the channels are reversed (RGB and BGR)"
            if want.shape[axis] in (3, 4)
            else f"axis {axis} runs the other way",
            made=np.flip(want, axis),
        )
    for axes in (
        itertools.islice(itertools.permutations(range(want.ndim)), 1, None)
        if 1 < want.ndim <= _MOST_AXES
        else ()
    ):
        if tuple(want.shape[axis] for axis in axes) == both.got.shape:
            yield Slip(
                what=f"the axes are exchanged: {axes}"
                if want.shape == both.got.shape
                else f"the layout is {axes}",
                made=want.transpose(axes),
            )


def _scaled(both: Both) -> Iterator[Slip]:
    """A factor and a shift: for all values, for each channel, or for each of a batch; with the channels reversed, too."""
    want, got = both.want, both.got
    if want.shape != got.shape or "f" not in want.dtype.kind + got.dtype.kind:
        return
    few = [axis for axis in range(want.ndim) if 1 < want.shape[axis] <= 4]
    alone = [0] if want.ndim > 1 and 0 not in few else []
    ways = [
        (want, None),
        *((want, axis) for axis in [*few, *alone]),
        *((np.flip(want, axis), axis) for axis in few),
    ]
    for start, axis in ways:
        whole, place = (start[None], 0) if axis is None else (start, axis)
        found = affine.by_channel(whole, got[None] if axis is None else got, place)
        if found is not None:
            said = "" if start is want else " in the other order of channels"
            yield Slip(
                what=_named(whole, *found, place) + said,
                made=affine.applied(whole.astype(np.float64), *found, place).reshape(got.shape),
            )


def _named(want: Array, factor: Array, shift: Array, axis: int) -> str:
    """A factor and a shift in words: which usual scaling is in the place of which."""
    known = (
        norms.IMAGES if want.ndim > 4 or len(factor) > 1 else norms.USUAL
    )  # of all values at once there is one axis more
    usual = next(
        (
            f" ({other.name} in the place of {own.name})"
            for own, other in norms.pairs(known, len(factor))
            if norms.alike((factor, shift), norms.turning(own, other, len(factor)))
        ),
        "",
    )
    rows = np.moveaxis(want.astype(np.float64), axis, 0).reshape(len(factor), -1)
    for name, size in (
        (
            ("by the peak", np.abs(rows).max(1)),
            ("by the root of the mean square", np.sqrt((rows**2).mean(1))),
        )
        if not usual and not (np.abs(shift) > 1e-6 * scale_of(want)).any()
        else ()
    ):
        usual = usual or (
            f" (normalised {name})" if np.allclose(factor * size, 1, rtol=1e-4) else ""
        )
    if (
        not usual
        and np.allclose(factor * rows.std(1), 1, rtol=1e-3)
        and np.allclose(shift, -factor * rows.mean(1), rtol=1e-3)
    ):
        usual = " (normalised to a mean of 0 and a spread of 1)"
    return f"another scale, mean or standard deviation: factor {np.round(factor, 4).tolist()}, shift {np.round(shift, 4).tolist()}{usual}"


def _raw(both: Both) -> Iterator[Slip]:
    """The model's own preprocessing on raw data that is changed first."""
    raw = both.array()
    if raw is None:
        return
    axis = next(
        (axis for axis in (-1, -3) if raw.ndim >= -axis and raw.shape[axis] in (3, 4)), None
    )
    if axis is not None:
        order = [2, 1, 0, 3][: raw.shape[axis]]
        yield Slip(
            what="the channels of the raw input are reversed (RGB and BGR)",
            made=both.own(np.ascontiguousarray(np.take(raw, order, axis))),
        )


def _stepped(both: Both) -> Iterator[Slip]:
    """One side lies on a grid of even steps, and the other would with its values rounded."""
    if both.want.shape != both.got.shape or "f" not in (both.want.dtype.kind + both.got.dtype.kind):
        return
    for who, on, off in (
        ("the deployment", both.got, both.want),
        ("the model's own", both.want, both.got),
    ):
        for axis in [None, *(axis for axis in range(on.ndim) if 1 < on.shape[axis] <= 4)]:
            for rounded, words in ((np.rint, "rounds"), (lambda x: np.floor(x + 1e-4), "cuts off")):
                made = _on_grid(on.astype(np.float64), off.astype(np.float64), axis, rounded)
                if made is not None:
                    yield Slip(
                        what=f"{who} {words} to whole steps (as of uint8), the other does not",
                        made=made,
                        target=on,
                    )


def _on_grid(on: Array, off: Array, axis: int | None, rounded: Any) -> Array | None:
    """`off` brought onto the grid of `on`, channel by channel; None where `on` has none."""
    ons, offs = (
        np.moveaxis(v, axis, 0).reshape(v.shape[axis], -1) if axis is not None else v.reshape(1, -1)
        for v in (on, off)
    )
    made = np.empty_like(offs)
    for channel, values in enumerate(ons):
        levels = np.unique(values)
        steps = np.diff(levels)
        step = (
            float(np.median(steps[steps > 1e-6 * scale_of(values)]))
            if (steps > 1e-6 * scale_of(values)).any()
            else 0.0
        )
        places = (levels - levels[0]) / step if step else levels
        if (
            not step
            or len(values) < _LEAST_VALUES
            or not _LEAST_LEVELS <= len(levels) <= 300
            or np.abs(places - np.rint(places)).max() > 1e-2
        ):
            return None
        made[channel] = rounded((offs[channel] - levels[0]) / step) * step + levels[0]
    return (
        np.moveaxis(made.reshape(np.moveaxis(on, axis, 0).shape), 0, axis)
        if axis is not None
        else made.reshape(on.shape)
    )
