"""Does data look like what a model was trained on? The model's own statistics are asked.

A BatchNorm keeps the mean and the variance that each channel had in training. Data of the same kind, normalised by them, has mean 0 and variance 1.
Measured on nets trained on 8x8 digits, at the first BatchNorm (scale, shift and spread as in `NormStatistics`):

| data | scale | shift | spread |
| --- | --: | --: | --: |
| test images (16 of them or 256, as they are or standardised) | 1.00 to 1.01 | 0.01 to 0.03 | 0.01 to 0.02 |
| one test image | 1.05 to 1.08 | 0.07 | 0.16 |
| times 0.7 / 1.5 | 0.70 / 1.51 | 0.20 / 0.33 | 0.01 |
| times 0.1 / 0.3 / 3 / 10 / 255 | 0.10 / 0.30 / 3.0 / 10 / 255 | 0.1 to 169 | 0.01 |
| 0 to 1 where standardised images are meant | 0.40 | 0.19 | 0.11 |
| zeros | 0.00 | 0.67 | 0.00 |
| noise of the same mean and deviation | 0.96 to 1.04 | 0.09 | 0.35 |
| turned by 90 degrees | 1.00 | 0.08 | 0.19 to 0.30 |

So scale and shift distinguish wrong scaling clearly. Noise on images this small does not differ enough from another domain; on smooth
images it does, since neighbouring pixels no longer agree.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.inputs.norm_statistics import NormStatistics, norms
from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, read
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

_SCALE = 1.8
"""Values may be this many times larger or smaller than in training: augmentation and another domain stay below 1.5, wrong scaling begins at 2."""
_SHIFT = 1.0
"""Standard deviations (rms over channels) that the means may lie away from training's; the table above has 0.33 for values times 1.5."""
_SPREAD = 0.5
"""Deviation over the channels of the log of their scale; the table above has 0.35 for noise."""
_LEAST_CHANNELS = 8
"""Channels from which on their spread is looked at (not measured)."""
_LATER = 2.0
"""After the first BatchNorm the limits are this much wider: what is a small difference of two domains grows with depth (not measured)."""
_PIXELS = (1 / 70_000, 1 / 40)
"""Factors at the input that turn pixels of 8 or 16 bits into numbers around 1, with a division by a standard deviation or without."""
_WIDTH = (1 / 16, 64.0)
"""The distance of the smallest and the largest value after such a factor (not measured)."""
_LOOKED_AT = 4096
"""Elements among which two different ones are looked for (not measured)."""
_ACTION = "give inputs exactly as the model is served, after its preprocessing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """What the model's statistics say of data."""

    asked: bool
    """False when the model has no statistics that could tell."""
    doubt: str = ""
    """Why the data looks wrong; empty where it does not."""


def examine(
    subject: Subject,
    reference: Reference,
    samples: Sequence[Inputs],
    float_file: OnnxFile | None = None,
) -> DataCheck:
    """Ask the BatchNorms, and where there are none the constants that normalise pixels inside the graph."""
    statistics = norms(subject, reference, samples)
    for place, norm in enumerate(statistics):
        why = doubt(norm, later=place > 0)
        if why:
            return DataCheck(asked=True, doubt=why)
    file = float_file
    if file is None and subject.onnx is not None:
        file = read(subject.onnx)
    if file is None:
        return DataCheck(asked=bool(statistics))
    factors = pixel_factors(file)
    for name, factor in factors.items():
        why = _pixel_doubt(name, factor, samples)
        if why:
            return DataCheck(asked=True, doubt=why)
    return DataCheck(asked=bool(statistics or factors))


def doubts(subject: Subject, reference: Reference, samples: Sequence[Inputs]) -> list[Finding]:
    """The finding on the user's own data, where it looks wrong."""
    if not samples:
        return []
    why = examine(subject, reference, samples).doubt
    if not why:
        return []
    return [finding("data-suspicious", "the data", why)]


def finding(code: str, what: str, doubt: str) -> Finding:
    """Data that looks wrong, as a finding; the verdict is at best DRIFT."""
    return Finding(code=code, what=f"{what} looks wrong: {doubt}", help=_ACTION, doubts=True)


def doubt(norm: NormStatistics, *, later: bool = False) -> str:
    """Why the data can't be what this BatchNorm was trained on; empty where it can. Few samples get wider limits: their own mean and variance vary."""
    width = 1.0
    if later:
        width = _LATER
    unsure = 1 / math.sqrt(max(norm.samples, 1))
    sees = f"over {norm.samples} samples the BatchNorm `{norm.name}` sees values"
    if norm.scale < 1e-6:
        return f"{sees} that do not vary at all"
    scale_limit = width * math.log(_SCALE) + math.sqrt(2) * unsure
    if abs(math.log(norm.scale)) > scale_limit:
        return f"{sees} {_times(norm.scale)} than in training (its running variance): {guess(norm.scale)}"
    if norm.shift > width * _SHIFT + 2 * unsure:
        return f"{sees} whose mean lies {norm.shift:.2g} standard deviations away from that in training (its running mean): was it normalised otherwise?"
    spread_limit = width * _SPREAD + math.sqrt(2) * unsure
    if norm.channels >= _LEAST_CHANNELS and norm.spread > spread_limit:
        return f"{sees} whose channels vary otherwise than in training (their scales differ by a factor of {math.exp(norm.spread):.2g}): is it noise, or of another kind?"
    return ""


def guess(ratio: float) -> str:
    """What was likely forgotten when data is off by this factor.

    >>> guess(254.0)
    'was normalisation left out (0 to 255 instead of 0 to 1)?'
    """
    if 180 < ratio < 1500:
        return "was normalisation left out (0 to 255 instead of 0 to 1)?"
    if 180 < 1 / ratio < 1500:
        return "was it normalised twice (divided by 255)?"
    return "was it scaled or normalised otherwise?"


def _times(ratio: float) -> str:
    if ratio > 1:
        return f"{ratio:,.3g} times larger"
    return f"{1 / ratio:,.3g} times smaller"


def pixel_factors(file: OnnxFile) -> dict[str, float]:
    """Inputs that the graph itself divides by 255 or the like before anything else, with the factor of that."""
    known = constants(file)
    consumers: dict[str, list[Any]] = {}
    for node in file.model.graph.node:
        for name in node.input:
            consumers.setdefault(name, []).append(node)
    factors = {port.name: _factor(port.name, consumers, known) for port in file.inputs}
    smallest, largest = _PIXELS
    return {name: factor for name, factor in factors.items() if smallest <= factor <= largest}


def _factor(
    value: str,
    consumers: Mapping[str, list[Any]],
    known: Mapping[str, Array],
) -> float:
    """The product of the constants that a value is multiplied with, as long as nothing but constants touches it."""
    factor = 1.0
    while len(consumers.get(value, ())) == 1:
        node = consumers[value][0]
        if not _is_affine(node, value, known):
            break
        others = [known[name] for name in node.input if name != value]
        if others and node.op_type in ("Mul", "Div"):
            middle = float(np.median(np.abs(others[0])))
            if node.op_type == "Mul":
                factor *= middle
            else:
                factor /= max(middle, 1e-30)
        value = node.output[0]
    return factor


def _is_affine(
    node: Any,
    value: str,
    known: Mapping[str, Array],
) -> bool:
    """Whether a node does nothing to a value but cast it, move its axes, or scale and shift it by constants."""
    if node.op_type not in ("Cast", "Transpose", "Sub", "Add", "Mul", "Div"):
        return False
    if node.op_type == "Div" and node.input[0] != value:
        return False
    return all(name in known for name in node.input if name != value)


def _pixel_doubt(
    name: str,
    factor: float,
    samples: Sequence[Inputs],
) -> str:
    """Why data can't be the pixels that the graph scales by this factor; empty where it can."""
    arrays = [sample[name] for sample in samples if name in sample and sample[name].size]
    if not arrays:
        return ""
    low = min(float(array.min()) for array in arrays)
    high = max(float(array.max()) for array in arrays)
    width = (high - low) * factor
    if _WIDTH[0] <= width <= _WIDTH[1]:
        return ""
    question = "was it scaled before?"
    if width < 1:
        question = "was it divided already?"
    return f"the graph divides `{name}` by {1 / factor:.3g}, as for pixels, and the data reaches from {low:.3g} to {high:.3g}: {question}"


def looks_made_up(array: Array) -> bool:
    """True for what people write where an example is asked for: randn, rand, zeros, ones. It says nothing about the data that is served.

    >>> looks_made_up(np.random.default_rng(0).standard_normal((1, 3, 8, 8))), looks_made_up(np.ones(4))
    (True, True)
    """
    values = np.asarray(array, np.float64).reshape(-1)
    if values.size < 2 or not np.isfinite(values).all():
        return True
    if np.unique(values[:_LOOKED_AT]).size <= 1:
        return True
    is_normal = _has_moments(values, 0.0, 1.0, 3.0)
    return is_normal or _has_moments(values, 0.5, math.sqrt(1 / 12), 1.8)


def _has_moments(
    values: Array,
    mean: float,
    deviation: float,
    fourth: float,
) -> bool:
    """Whether mean, deviation and fourth moment are within four standard errors of independent draws, and neighbours are uncorrelated."""
    error = 4 / math.sqrt(values.size)
    units = (values - mean) / deviation
    if abs(units.mean()) > error:
        return False
    variance_error = error * math.sqrt(max(fourth - 1, 1))
    if abs((units**2).mean() - 1) > variance_error:
        return False
    if not abs((units**4).mean() - fourth) <= error * 10:
        return False
    correlation = (units[1:] * units[:-1]).mean()
    return bool(abs(correlation) <= error)


def rows_rms(samples: Iterator[Array] | Sequence[Array]) -> Array:
    """The root mean square of every row of some batches."""
    by_batch = [np.zeros(0)]
    for array in samples:
        if array.ndim and array.size:
            rows = array.reshape(len(array), -1)
            squares = np.square(rows, dtype=np.float64)
            by_batch.append(np.sqrt(np.mean(squares, 1)))
    return np.concatenate(by_batch)
