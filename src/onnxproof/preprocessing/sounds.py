"""Mistakes with sounds and their spectra: each as the tensor that the model's own preprocessing would compute with it."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np

from onnxproof.preprocessing.mistake import CLOSE, Mistake, TensorPair, largest_magnitude
from onnxproof.preprocessing.resizing import resize_matrix

Array = np.ndarray[Any, Any]
_SAMPLE_RATES = (16000, 44100, 48000, 8000, 22050, 24000, 32000, 11025)
_MIN_VALUES, _MAX_VALUES = 8, 1 << 22
"""Sizes of a tensor that are looked at: fewer values agree by chance, more cost too much time. Not measured."""
_MIN_RESAMPLED, _MAX_RESAMPLED = 64, 1 << 14
"""Samples of a sound that is compared with itself resampled: the matrix has this many columns. Not measured."""
_MAX_SHIFT = 1024
"""Steps by which a sound may be earlier or later. Not measured."""
_UNCHANGED_SHARE = 0.2
"""Share of the values that a floor must not change. Not measured."""
_CORRELATION = 0.98
"""Correlation from which on two sounds count as the same: filters of resampling differ. Not measured."""
_CURVES: dict[str, Callable[[Array], Array]] = {
    "the logarithm is missing": np.exp,
    "a logarithm is taken of it": np.log,
    "a logarithm is taken of one more": np.log1p,
    "squares are taken (power for amplitude)": np.square,
    "roots are taken (amplitude for power)": np.sqrt,
}


def mistakes(pair: TensorPair) -> Iterator[Mistake]:
    """For floats whose last axis may be time."""
    if pair.own.dtype.kind != "f" or not 0 < pair.own.ndim == pair.deployed.ndim:
        return
    if not _MIN_VALUES <= pair.own.size <= _MAX_VALUES:
        return
    own = pair.own.astype(np.float64)
    deployed = pair.deployed.astype(np.float64)
    if not np.ptp(own) or not np.ptp(deployed):
        return
    if own.shape[:-1] == deployed.shape[:-1]:
        yield from _shifts(own, deployed)
        yield from _resampling(own, deployed)
    if own.shape != deployed.shape:
        return
    yield from _mono_rules(pair)
    yield from _pre_emphasis(own, deployed)
    with np.errstate(all="ignore"):
        yield from _curves(own, deployed)
        yield from _floors(own, deployed)


def _resampling(own: Array, deployed: Array) -> Iterator[Mistake]:
    """Another length by the ratio of two usual rates, and the same sound in it."""
    before = own.shape[-1]
    after = deployed.shape[-1]
    if before == after or not _MIN_RESAMPLED <= before <= _MAX_RESAMPLED:
        return
    rates = _rates_of_ratio(before, after)
    if rates is None:
        return
    resampled = own @ resize_matrix(before, after, "bilinear with antialiasing").T
    if _correlated(resampled, deployed):
        own_rate, deployed_rate = rates
        yield Mistake(
            description=f"another sample rate: {after / before:.4g} times as many samples, as for {deployed_rate:,} Hz in the place of {own_rate:,} Hz",
            result=deployed,
            proven=False,
        )


def _rates_of_ratio(before: int, after: int) -> tuple[int, int] | None:
    """The first two usual sample rates between which that many samples become that many."""
    for own_rate, deployed_rate in permutations(_SAMPLE_RATES, 2):
        if abs(after - before * deployed_rate / own_rate) <= 1.5:
            return own_rate, deployed_rate
    return None


def _correlated(first: Array, second: Array) -> bool:
    a = first - first.mean()
    b = second - second.mean()
    return bool((a * b).sum() >= _CORRELATION * np.sqrt((a**2).sum() * (b**2).sum()))


def _shifts(own: Array, deployed: Array) -> Iterator[Mistake]:
    """The same values earlier or later, as from another padding or hop; the ends may differ."""
    own_length = own.shape[-1]
    deployed_length = deployed.shape[-1]
    shorter = min(own_length, deployed_length)
    # of a single row eight values must agree, of several rows three steps: fewer do by chance (not measured)
    fewest = 8 if own.size == own_length else 3
    overlap = max(fewest, shorter // 2)
    longest_shift = min(_MAX_SHIFT, max(own_length, deployed_length) - overlap)
    for shift in range(1, longest_shift + 1):
        for word, first, second in (("later", own, deployed), ("earlier", deployed, own)):
            target = second[..., shift : shift + first.shape[-1]]
            kept = first[..., : target.shape[-1]]
            if target.shape[-1] >= overlap and _begins_alike(kept, target):
                steps = "step" if shift == 1 else "steps"
                yield Mistake(
                    description=f"everything comes {shift} {steps} {word} (another padding, hop or trimming)",
                    result=kept,
                    target=target,
                )
    if own_length != deployed_length and np.ptp(own[..., :shorter]) > 0:
        yield Mistake(
            description=f"the same values, and {deployed_length} instead of {own_length} steps (another padding, or cut off)",
            result=own[..., :shorter],
            target=deployed[..., :shorter],
        )


def _begins_alike(kept: Array, target: Array) -> bool:
    """A cheap test before all values are compared; a constant part says nothing."""
    if not np.ptp(kept) > 0:
        return False
    difference = abs(float(target.flat[0]) - float(kept.flat[0]))
    return difference <= CLOSE * largest_magnitude(kept)


def _mono_rules(pair: TensorPair) -> Iterator[Mistake]:
    """Mono by another rule, from raw data of two channels."""
    raw = pair.raw_array
    if raw is None or raw.ndim != 2 or 2 not in raw.shape:
        return
    if raw.shape[0] != 2:
        raw = raw.T
    stereo = raw.astype(np.float64)
    rules = {
        "the mean of both channels": stereo.mean(0),
        "the first channel": stereo[0],
        "the second channel": stereo[1],
        "the sum of both channels": stereo.sum(0),
    }
    own = pair.own.reshape(-1).astype(np.float64)
    deployed = pair.deployed.reshape(-1).astype(np.float64)
    for (own_rule, own_mono), (deployed_rule, deployed_mono) in permutations(rules.items(), 2):
        factor = _exact_factor(own_mono, own)
        if factor is not None:
            yield Mistake(
                description=f"the deployment takes {deployed_rule}, the model's own {own_rule}",
                result=deployed_mono * factor,
                target=deployed,
            )


def _exact_factor(source: Array, target: Array) -> float | None:
    """The factor between two sounds, if one explains every value."""
    power = (source**2).sum()
    if source.size != target.size or not power > 0:
        return None
    factor = float((source * target).sum() / power)
    if np.abs(source * factor - target).max() <= CLOSE * largest_magnitude(target):
        return factor
    return None


def _pre_emphasis(own: Array, deployed: Array) -> Iterator[Mistake]:
    """`x[t] - c * x[t - 1]`, on one side only."""
    for template, plain, emphasised in (
        ("the deployment has a pre-emphasis of {:.3g} that the model's own lacks", own, deployed),
        ("the model's own has a pre-emphasis of {:.3g} that the deployment lacks", deployed, own),
    ):
        previous = plain[..., :-1]
        power = float((previous**2).sum())
        if not power:
            continue
        change = (plain - emphasised)[..., 1:]
        coefficient = float((previous * change).sum() / power)
        if 0.5 < coefficient <= 1:  # the usual one is 0.97
            yield Mistake(
                description=template.format(coefficient),
                result=plain[..., 1:] - coefficient * previous,
                target=emphasised[..., 1:],
            )


def _curves(own: Array, deployed: Array) -> Iterator[Mistake]:
    """Another curve through every value, or another constant inside of a logarithm."""
    for description, curve in _CURVES.items():
        result = curve(own)
        if np.isfinite(result).all():
            yield Mistake(description=description, result=result)
    constants = np.exp(deployed) - np.exp(own)
    if np.isfinite(constants).all():
        constant = np.median(constants)
        yield Mistake(
            description=f"{constant:+.3g} inside of the logarithm",
            result=np.log(np.maximum(np.exp(own) + constant, 1e-300)),
        )


def _floors(own: Array, deployed: Array) -> Iterator[Mistake]:
    """Another smallest value, which the other values do not go below."""
    unchanged = np.abs(own - deployed) <= CLOSE * largest_magnitude(own)
    if unchanged.mean() < _UNCHANGED_SHARE:
        return
    floor = deployed.min()
    own_floor = own.min()
    description = f"a floor of {floor:.4g} in the place of {own_floor:.4g}"
    yield Mistake(description=description, result=np.maximum(own, floor))
    yield Mistake(description=description, result=own, target=np.maximum(deployed, own_floor))
