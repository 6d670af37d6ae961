"""What goes wrong with sounds and their spectra: each as what the model's own preprocessing would make with it."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np

from onnxproof.preprocessing.mistake import CLOSE, Both, Slip, scale_of
from onnxproof.preprocessing.resizing import matrix

Array = np.ndarray[Any, Any]
_RATES = (16000, 44100, 48000, 8000, 22050, 24000, 32000, 11025)
_LEAST_SAMPLES = 64
_MOST_SHIFT = 1024
_LONGEST = 1 << 22
_MOSTLY = 0.2
"""Share of the values that a floor must leave alone."""
_ALIKE = 0.98
"""Correlation from which on two sounds are one: filters of resampling differ."""
_SHAPES: dict[str, Callable[[Array], Array]] = {
    "the logarithm is missing": np.exp,
    "a logarithm is taken of it": np.log,
    "a logarithm is taken of one more": np.log1p,
    "squares are taken (power for amplitude)": np.square,
    "roots are taken (amplitude for power)": np.sqrt,
}


def slips(both: Both) -> Iterator[Slip]:
    """For floats whose last axis may be time."""
    if (
        both.want.dtype.kind != "f"
        or not 0 < both.want.ndim == both.got.ndim
        or not 8 <= both.want.size <= _LONGEST
    ):
        return
    want, got = both.want.astype(np.float64), both.got.astype(np.float64)
    if not np.ptp(want) or not np.ptp(got):
        return
    yield from _shifted(want, got)
    yield from _resampled(want, got)
    if want.shape != got.shape:
        return
    yield from _of_channels(both)
    yield from _emphasised(want, got)
    with np.errstate(all="ignore"):
        yield from _shaped(want, got)


def _resampled(want: Array, got: Array) -> Iterator[Slip]:
    """Another length by the ratio of two usual rates, and the same sound in it."""
    before, after = want.shape[-1], got.shape[-1]
    if (
        before == after
        or want.shape[:-1] != got.shape[:-1]
        or not _LEAST_SAMPLES <= before <= 1 << 14
    ):
        return
    pair = next(
        ((a, b) for a, b in permutations(_RATES, 2) if abs(after - before * b / a) <= 1.5), None
    )
    if pair is None:
        return
    again = want @ matrix(before, after, "bilinear with antialiasing").T
    one, two = (v - v.mean() for v in (again, got))
    if (one * two).sum() >= _ALIKE * np.sqrt((one**2).sum() * (two**2).sum()):
        yield Slip(
            what=f"another sample rate: {after / before:.4g} times as many samples, as for {pair[1]:,} Hz in the place of {pair[0]:,} Hz",
            made=got,
            sure=False,
        )


def _shifted(want: Array, got: Array) -> Iterator[Slip]:
    """The same values earlier or later, as from another padding or hop; the ends may differ."""
    length = min(want.shape[-1], got.shape[-1])
    least = max(8 if want.size == want.shape[-1] else 3, length // 2)
    if want.shape[:-1] != got.shape[:-1]:
        return
    for shift in range(1, min(_MOST_SHIFT, max(want.shape[-1], got.shape[-1]) - least) + 1):
        for late, (one, two) in (("later", (want, got)), ("earlier", (got, want))):
            part = two[..., shift : shift + one.shape[-1]]
            kept = one[..., : part.shape[-1]]
            if (
                part.shape[-1] >= least
                and np.ptp(kept) > 0
                and abs(float(part.flat[0]) - float(kept.flat[0])) <= CLOSE * scale_of(kept)
            ):
                yield Slip(
                    what=f"everything comes {shift} step{'s' * (shift != 1)} {late} (another padding, hop or trimming)",
                    made=kept,
                    target=part,
                )
    if want.shape != got.shape and np.ptp(want[..., :length]) > 0:
        yield Slip(
            what=f"the same values, and {got.shape[-1]} instead of {want.shape[-1]} steps (another padding, or cut off)",
            made=want[..., :length],
            target=got[..., :length],
        )


def _of_channels(both: Both) -> Iterator[Slip]:
    """Mono by another rule, from raw data of two channels."""
    raw = both.array()
    if raw is None or raw.ndim != 2 or 2 not in raw.shape:
        return
    pair = (raw if raw.shape[0] == 2 else raw.T).astype(np.float64)
    rules = {
        "the mean of both channels": pair.mean(0),
        "the first channel": pair[0],
        "the second channel": pair[1],
        "the sum of both channels": pair.sum(0),
    }
    want, got = both.want.reshape(-1).astype(np.float64), both.got.reshape(-1).astype(np.float64)
    for (own, mono), (other, theirs) in permutations(rules.items(), 2):
        if mono.size == want.size and (mono**2).sum() > 0:
            factor = float((mono * want).sum() / (mono**2).sum())
            if np.abs(mono * factor - want).max() <= CLOSE * scale_of(want):
                yield Slip(
                    what=f"the deployment takes {other}, the model's own {own}",
                    made=theirs * factor,
                    target=got,
                )


def _emphasised(want: Array, got: Array) -> Iterator[Slip]:
    """`x[t] - c * x[t - 1]`, on one side alone."""
    for words, one, two in (
        ("the deployment has a pre-emphasis of {:.3g} that the model's own lacks", want, got),
        ("the model's own has a pre-emphasis of {:.3g} that the deployment lacks", got, want),
    ):
        before, change = one[..., :-1], (one - two)[..., 1:]
        power = float((before**2).sum())
        share = float((before * change).sum() / power) if power else 0.0
        if 0.5 < share <= 1:
            yield Slip(
                what=words.format(share), made=one[..., 1:] - share * before, target=two[..., 1:]
            )


def _shaped(want: Array, got: Array) -> Iterator[Slip]:
    """Another curve through every value, and another floor inside of a logarithm."""
    for words, curve in _SHAPES.items():
        made = curve(want)
        if np.isfinite(made).all():
            yield Slip(what=words, made=made)
    floor = np.exp(got) - np.exp(want)
    if np.isfinite(floor).all():
        yield Slip(
            what=f"{np.median(floor):+.3g} inside of the logarithm",
            made=np.log(np.maximum(np.exp(want) + np.median(floor), 1e-300)),
        )
    low, lowest = got.min(), want.min()
    if (np.abs(want - got) <= CLOSE * scale_of(want)).mean() < _MOSTLY:
        return
    yield Slip(
        what=f"a floor of {low:.4g} in the place of {lowest:.4g}", made=np.maximum(want, low)
    )
    yield Slip(
        what=f"a floor of {low:.4g} in the place of {lowest:.4g}",
        made=want,
        target=np.maximum(got, lowest),
    )
