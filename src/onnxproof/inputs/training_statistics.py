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

So scale and shift tell wrong scaling apart with room to spare. Noise on images this small does not differ enough from another domain; on smooth
images it does, since neighbouring pixels no longer agree.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxproof.onnxmodel.onnx_file import OnnxFile, constants, read
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]

_SCALE = 1.8
"""Values may be this many times larger or smaller than in training: augmentation and another domain stay below 1.5, wrong scaling begins at 2."""
_SHIFT = 1.0
"""Standard deviations (rms over channels) that the means may lie away from training's."""
_SPREAD = 0.5
"""Deviation over the channels of the log of their scale."""
_LEAST_CHANNELS = 8
_LATER = 2.0
"""After the first BatchNorm the limits are this much wider: what is a small difference of two domains grows with depth."""
_LOOKED_AT = 3
"""BatchNorms that are asked, in the order in which they run: the first ones know the inputs best."""
_PIXELS = (1 / 70_000, 1 / 40)
"""Factors at the input that turn pixels of 8 or 16 bits into numbers around 1, with a division by a standard deviation or without."""
_WIDTH = (1 / 16, 64.0)
"""How far apart the smallest and the largest value may lie after such a factor."""
_ACTION = "give inputs exactly as the model is served, after its preprocessing"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormStatistics:
    """What one BatchNorm sees on some data, in units of its running statistics."""

    name: str
    samples: int
    scale: float
    """Standard deviation over training's: the median over the channels."""
    shift: float
    """Distance of the mean from training's, in training's deviations: the rms over the channels."""
    spread: float
    """Standard deviation over the channels of log(scale)."""
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCheck:
    """What the model's statistics say of data."""

    asked: bool
    """False when the model has no statistics that could tell."""
    doubt: str = ""
    """Why the data looks wrong; empty where it does not."""


class _Sums:
    """Sums over one BatchNorm's input, channel by channel."""

    def __init__(self, mean: Array, variance: Array) -> None:
        self.mean, self.deviation = mean.astype(np.float64), np.sqrt(variance.astype(np.float64))
        self.count, self.samples = 0, 0
        self.total, self.squares = np.zeros(mean.size), np.zeros(mean.size)

    def add(self, values: Array) -> None:
        """Take one batch; channels are the second axis."""
        if values.ndim < 2 or values.shape[1] != self.mean.size or not values.size:
            return
        rows = np.moveaxis(values.astype(np.float64), 1, 0).reshape(self.mean.size, -1)
        rows = (rows - self.mean[:, None]) / self.deviation[:, None]
        self.count, self.samples = self.count + rows.shape[1], self.samples + values.shape[0]
        self.total, self.squares = self.total + rows.sum(1), self.squares + (rows * rows).sum(1)

    def statistics(self, name: str) -> NormStatistics:
        """What was seen so far."""
        means = self.total / self.count
        scales = np.sqrt(np.maximum(self.squares / self.count - means**2, 1e-24))
        return NormStatistics(
            name=name,
            samples=self.samples,
            scale=float(np.median(scales)),
            shift=float(np.sqrt(np.mean(means**2))),
            spread=float(np.log(scales).std()),
            channels=means.size,
        )


def examine(
    subject: Subject,
    reference: Reference,
    samples: Sequence[Inputs],
    float_file: OnnxFile | None = None,
) -> DataCheck:
    """Ask the BatchNorms, and where there are none the constants that normalise pixels inside the graph."""
    found = norms(subject, reference, samples)
    doubts = [why for place, norm in enumerate(found) if (why := doubt(norm, later=place > 0))]
    if doubts:
        return DataCheck(asked=True, doubt=doubts[0])
    file = (
        float_file
        if float_file is not None
        else (read(subject.onnx) if subject.onnx is not None else None)
    )
    pixels = {} if file is None else pixel_factors(file)
    doubts = [
        why for name, factor in pixels.items() if (why := _pixel_doubt(name, factor, samples))
    ]
    return DataCheck(asked=bool(found or pixels), doubt=doubts[0] if doubts else "")


def finding(code: str, what: str, doubt: str) -> Finding:
    """Data that looks wrong, as a finding; the verdict is at best DRIFT."""
    return Finding(code=code, what=f"{what} looks wrong: {doubt}", help=_ACTION, doubts=True)


def doubt(norm: NormStatistics, *, later: bool = False) -> str:
    """Why the data can't be what this BatchNorm was trained on; empty where it can. Few samples get wider limits: their own mean and variance vary."""
    room, unsure = _LATER if later else 1.0, 1 / math.sqrt(max(norm.samples, 1))
    sees = f"over {norm.samples} samples the BatchNorm `{norm.name}` sees values"
    if norm.scale < 1e-6:
        return f"{sees} that do not vary at all"
    if abs(math.log(norm.scale)) > room * math.log(_SCALE) + math.sqrt(2) * unsure:
        return f"{sees} {_times(norm.scale)} than in training (its running variance): {guess(norm.scale)}"
    if norm.shift > room * _SHIFT + 2 * unsure:
        return f"{sees} whose mean lies {norm.shift:.2g} standard deviations away from that in training (its running mean): was it normalised otherwise?"
    if norm.channels >= _LEAST_CHANNELS and norm.spread > room * _SPREAD + math.sqrt(2) * unsure:
        return f"{sees} whose channels vary otherwise than in training (their scales differ by a factor of {math.exp(norm.spread):.2g}): is it noise, or of another kind?"
    return ""


def guess(ratio: float) -> str:
    """What was likely forgotten when data is off by this factor.

    >>> guess(254.0)
    'was normalisation left out (0 to 255 instead of 0 to 1)?'
    """
    size = max(ratio, 1 / ratio)
    if 180 < size < 1500:
        return (
            "was normalisation left out (0 to 255 instead of 0 to 1)?"
            if ratio > 1
            else "was it normalised twice (divided by 255)?"
        )
    return "was it scaled or normalised otherwise?"


def _times(ratio: float) -> str:
    return f"{ratio:,.3g} times larger" if ratio > 1 else f"{1 / ratio:,.3g} times smaller"


def norms(
    subject: Subject, reference: Reference, samples: Sequence[Inputs]
) -> list[NormStatistics]:
    """What the first BatchNorms with trained statistics see on these samples, in the order in which they run; none where a sample can't be run."""
    if not samples:
        return []
    try:
        sums = (
            _of_file(read(subject.onnx), samples)
            if subject.onnx is not None
            else _of_module(subject.module, reference, samples)
        )
    except Exception:  # the user's own module, watched: one that can't be followed has no say
        return []
    return [each.statistics(name) for name, each in list(sums.items())[:_LOOKED_AT] if each.count]


def _trained(
    mean: Array, variance: Array, weight: Array | None, bias: Array | None, tracked: int
) -> bool:
    """True when the statistics come from training: defaults, and statistics that were put in by hand beside default weights, know no data."""
    if not (np.isfinite(mean).all() and np.isfinite(variance).all() and (variance > 0).all()):
        return False
    if (mean == 0).all() and (variance == 1).all():
        return False
    plain = (weight is None or bool((weight == 1).all())) and (bias is None or not bias.any())
    return tracked > 0 or not plain


def _of_module(module: Any, reference: Any, samples: Sequence[Inputs]) -> dict[str, _Sums]:
    """Every call of `batch_norm` in its first run with these inputs, whoever makes it: a layer, a function, an exported program."""
    from onnxproof.reference.dispatch import Mode, named_arguments
    from onnxproof.reference.torch_session import to_numpy

    layers = {
        part.running_mean.data_ptr(): (name, part)
        for name, part in getattr(module, "named_modules", list)()
        if getattr(part, "running_mean", None) is not None
    }
    found: dict[str, _Sums] = {}

    class Watch(Mode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "batch_norm" in str(func):
                look(named_arguments(func, args, kwargs))
            return func(*args, **(kwargs or {}))

    def look(named: Mapping[str, Any]) -> None:
        mean, variance = named.get("running_mean"), named.get("running_var")
        if mean is None or variance is None or named.get("training"):
            return
        name, layer = layers.get(mean.data_ptr(), (str(len(found)), None))
        if name not in found:
            weight, bias = (
                None if named.get(key) is None else to_numpy(named[key])
                for key in ("weight", "bias")
            )
            tracked = int(getattr(layer, "num_batches_tracked", None) or 0)
            values = to_numpy(mean).astype(np.float64), to_numpy(variance).astype(np.float64)
            if not _trained(*values, weight, bias, tracked):
                return
            found[name] = _Sums(values[0], values[1] + float(named.get("eps") or 0.0))
        found[name].add(to_numpy(named["input"]))

    names = list(reference.example())
    with Watch():
        for sample in samples:
            reference.run(dict(zip(names, sample.values(), strict=True)))
    return found


def _of_file(file: OnnxFile, samples: Sequence[Inputs]) -> dict[str, _Sums]:
    """The BatchNormalization nodes of a file in graph order; folded ones are no longer there."""
    import onnx

    from onnxproof.runtimes import ort
    from onnxproof.runtimes.reference import add_outputs

    known = constants(file, largest=1 << 14)
    found: dict[str, tuple[str, _Sums]] = {}
    for node in file.model.graph.node:
        if (
            node.op_type != "BatchNormalization"
            or not {*node.input[1:5]} <= set(known)
            or len(found) >= _LOOKED_AT
        ):
            continue
        weight, bias, mean, variance = (known[name] for name in node.input[1:5])
        if _trained(mean, variance, weight, bias, 0):
            eps = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            found[node.name or node.output[0]] = (node.input[0], _Sums(mean, variance + eps))
    if not found:
        return {}
    watched = onnx.load(str(file.path))
    inner = list(dict.fromkeys(value for value, _ in found.values()))
    add_outputs(
        watched, [value for value in inner if value not in {port.name for port in file.inputs}]
    )
    session = ort.open(watched.SerializeToString(), "disabled", outputs=inner)
    for sample in samples:
        values = dict(zip(inner, session.run(dict(sample)), strict=True))
        for value, sums in found.values():
            sums.add(np.asarray(values[value]))
    return {name: sums for name, (_, sums) in found.items()}


def pixel_factors(file: OnnxFile) -> dict[str, float]:
    """Inputs that the graph itself divides by 255 or the like before anything else, with the factor of that."""
    known = constants(file)
    readers: dict[str, list[Any]] = {}
    for node in file.model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = {port.name: _factor(port.name, readers, known) for port in file.inputs}
    return {name: factor for name, factor in found.items() if _PIXELS[0] <= factor <= _PIXELS[1]}


def _factor(value: str, readers: Mapping[str, list[Any]], known: Mapping[str, Array]) -> float:
    """The product of the constants that a value is multiplied with, as long as nothing but constants touches it."""
    factor = 1.0
    while len(readers.get(value, ())) == 1:
        node = readers[value][0]
        others = [known.get(name) for name in node.input if name != value]
        if (
            node.op_type not in ("Cast", "Transpose", "Sub", "Add", "Mul", "Div")
            or any(other is None for other in others)
            or (node.input[0] != value and node.op_type == "Div")
        ):
            break
        if others and others[0] is not None and node.op_type in ("Mul", "Div"):
            middle = float(np.median(np.abs(others[0])))
            factor = factor * middle if node.op_type == "Mul" else factor / max(middle, 1e-30)
        value = node.output[0]
    return factor


def _pixel_doubt(name: str, factor: float, samples: Sequence[Inputs]) -> str:
    arrays = [sample[name] for sample in samples if name in sample and sample[name].size]
    if not arrays:
        return ""
    low, high = min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)
    if _WIDTH[0] <= (high - low) * factor <= _WIDTH[1]:
        return ""
    return (
        f"the graph divides `{name}` by {1 / factor:.3g}, as for pixels, and the data reaches from {low:.3g} to {high:.3g}: "
        f"{'was it divided already?' if (high - low) * factor < 1 else 'was it scaled before?'}"
    )


def looks_made_up(array: Array) -> bool:
    """True for what people write where an example is asked for: randn, rand, zeros, ones. It says nothing about the data that is served.

    >>> looks_made_up(np.random.default_rng(0).standard_normal((1, 3, 8, 8))), looks_made_up(np.ones(4))
    (True, True)
    """
    values = np.asarray(array, np.float64).reshape(-1)
    if values.size < 2 or not np.isfinite(values).all() or np.unique(values[:4096]).size <= 1:
        return True
    return any(
        _like(values, mean, deviation, fourth)
        for mean, deviation, fourth in ((0.0, 1.0, 3.0), (0.5, math.sqrt(1 / 12), 1.8))
    )


def _like(values: Array, mean: float, deviation: float, fourth: float) -> bool:
    """Whether mean, deviation and fourth moment are within four standard errors of independent draws, and neighbours do not know each other."""
    error = 4 / math.sqrt(values.size)
    units = (values - mean) / deviation
    if abs(units.mean()) > error or abs((units**2).mean() - 1) > error * math.sqrt(
        max(fourth - 1, 1)
    ):
        return False
    return bool(
        abs((units**4).mean() - fourth) <= error * 10
        and abs((units[1:] * units[:-1]).mean()) <= error
    )


def rows_rms(samples: Iterator[Array] | Sequence[Array]) -> Array:
    """The root mean square of every row of some batches."""
    return np.concatenate(
        [
            np.sqrt(np.mean(np.square(a.reshape(len(a), -1), dtype=np.float64), 1))
            for a in samples
            if a.ndim and a.size
        ]
        or [np.zeros(0)]
    )
