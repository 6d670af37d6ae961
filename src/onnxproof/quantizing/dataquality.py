"""Is the calibration data any good? Asked before a model is made of it: each answer is a finding, and the worst are errors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from onnxproof.quantizing.bench import Answers
from onnxproof.quantizing.observe import Pass
from onnxproof.quantizing.statistics import Statistics
from onnxproof.types import Finding

Array = np.ndarray[Any, Any]
FEW = 32
_CLIPPED = 1e-3
_COUNTED = 20
"""Values beyond a range that make a share of a small tensor more than chance."""
_GROWING = 0.02
_OFF = 8.0
"""Inputs that are this many times larger or smaller than they should be are something else."""
_MOST_CLASSES = 100


def examine(seen: Pass, answers: Answers, *, expected: Mapping[str, Array] | None = None, expected_from: str = "the example inputs") -> list[Finding]:
    """Everything that can be said from the pass itself, and against inputs that are known to be right."""
    found = [*_amount(seen), *_held_out(seen), *_classes(answers)]
    for name, stats in seen.fitted.items():
        if expected is not None and name in expected and expected[name].dtype.kind == "f":
            found += scale_of(name, stats, expected[name], expected_from)
    found += [Finding(code="calibration-not-finite", what=f"left out: {words}", help="NaN and infinities say nothing about a range") for words in seen.broken[:4]]
    return found


def scale_of(name: str, stats: Statistics, expected: Array, where: str) -> list[Finding]:
    """Whether the calibration data is of the size that the inputs should be, with a guess at what was forgotten."""
    other = Statistics()
    other.update(np.asarray(expected, np.float32), where)
    if not stats.count or not other.count or not other.rms:
        return []
    if not stats.rms:
        return [Finding(code="calibration-constant", what=f"the calibration data for `{name}` is all zeros", help="was it read as it is served?", counts=True)]
    ratio = stats.rms / other.rms
    if 1 / _OFF < ratio < _OFF:
        return []
    return [Finding(code="calibration-scale", what=f"the calibration data for `{name}` looks {_times(ratio)} than {where}: {guess(ratio)}",
                    help="calibrate with inputs exactly as the model is served, after its preprocessing", counts=True)]


def guess(ratio: float) -> str:
    """What was likely forgotten when data is off by this factor.

    >>> guess(254.0)
    'was normalisation left out (0 to 255 instead of 0 to 1)?'
    """
    size = max(ratio, 1 / ratio)
    if 180 < size < 1500:
        return "was normalisation left out (0 to 255 instead of 0 to 1)?" if ratio > 1 else "was it normalised twice (divided by 255)?"
    return "was it scaled or normalised otherwise?"


def _times(ratio: float) -> str:
    return f"{ratio:,.3g} times larger" if ratio > 1 else f"{1 / ratio:,.3g} times smaller"


def _amount(seen: Pass) -> list[Finding]:
    found = []
    if seen.samples == 1:
        found.append(Finding(code="calibration-one-sample", what="there is one calibration sample: ranges fit it and nothing else", help="give a few hundred"))
    elif seen.samples < FEW:
        found.append(Finding(code="calibration-few-samples", what=f"there are {seen.samples} calibration samples", help="ranges are steady from about a hundred on"))
    last = [growth for _, growth in seen.trail[-max(len(seen.trail) // 4, 1) :]]
    if len(seen.trail) >= 4 and float(np.mean(last)) > _GROWING:
        found.append(Finding(code="calibration-growing", what=f"ranges still grow by {np.mean(last):.1%} with each batch", help="more data would still move them"))
    return found


def _held_out(seen: Pass) -> list[Finding]:
    """What ranges from four fifths of the data clip on the last fifth."""
    worst, where = 0.0, ""
    for name, stats in seen.held.items():
        fitted = seen.fitted.get(name)
        if fitted is not None and fitted.count and stats.count:
            share = stats.beyond(fitted.low, fitted.high)
            if share > worst and stats.count * share >= _COUNTED:
                worst, where = share, name
    if worst <= _CLIPPED:
        return []
    return [Finding(code="calibration-clips", what=f"ranges from most of the data clip {worst:.2%} of `{where}` on the rest", help="the data is too little or too mixed")]


def _classes(answers: Answers) -> list[Finding]:
    """Classes that the float model never gives on the calibration data."""
    if not answers or not answers[0] or answers[0][0].ndim != 2 or not 2 < answers[0][0].shape[1] <= _MOST_CLASSES:
        return []
    chosen = np.concatenate([batch[0].argmax(1) for batch in answers])
    size = answers[0][0].shape[1]
    missing = sorted(set(range(size)) - set(chosen.tolist()))
    if len(chosen) < 3 * size or not missing or len(missing) < max(2, size // 5):
        return []
    shown = ", ".join(map(str, missing[:8]))
    return [Finding(code="calibration-classes", what=f"the model gives {len(missing)} of its {size} classes to no calibration sample ({shown})",
                    help="calibrate with data of all classes")]
