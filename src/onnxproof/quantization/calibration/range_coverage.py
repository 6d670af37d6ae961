"""How the ranges of a quantized graph fit data that did not choose them: what each one clips, and how much of it nobody uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.qdq import Pair, find_pairs
from onnxproof.results import CalibrationRange, Finding
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
CLIPPED = 1e-3
UNUSED = 0.5
"""Beyond this share of values clipped, or of the range unused, a range is a finding (not measured)."""
_MORE = 2.0
"""Times as much as on the data that chose the range: what a calibrator gives up on purpose is no finding."""
_COUNTED = 20
"""Values beyond a range that make a share of a small tensor more than chance (not measured)."""
_SLACK = 0.5
"""Steps beyond the last level that still round to it."""


@dataclass(slots=True)
class _Usage:
    """One rounded value, over the batches so far."""

    pair: Pair
    low: float = np.inf
    high: float = -np.inf
    outside: int = 0
    total: int = 0

    def add(self, array: Array) -> None:
        """Count what lies beyond the range; the range of each channel where there are several."""
        if not array.size:
            return
        shape = [1] * array.ndim
        if self.pair.scale.size > 1:
            shape[self.pair.axis] = -1
        low, high = (end.reshape(shape) for end in self.pair.limits)
        slack = _SLACK * self.pair.scale.reshape(shape)
        self.low = min(self.low, float(array.min()))
        self.high = max(self.high, float(array.max()))
        self.outside += int(((array < low - slack) | (array > high + slack)).sum())
        self.total += array.size

    def summarize(self) -> CalibrationRange:
        """The range beside what was observed."""
        lows, highs = self.pair.limits
        low, high = float(np.min(lows)), float(np.max(highs))
        used = 1.0
        if high > low:
            overlap = min(high, self.high) - max(low, self.low)
            used = max(overlap, 0.0) / (high - low)
        return CalibrationRange(
            tensor=self.pair.value,
            low=self.low,
            high=self.high,
            chosen_low=low,
            chosen_high=high,
            clipped=self.outside / self.total,
            unused=1 - used,
            values=self.total,
        )


def measure_coverage(
    quantized: onnx.ModelProto, samples: Sequence[Batch], plain: onnx.ModelProto
) -> tuple[CalibrationRange, ...]:
    """Every range of the graph against the values of its float graph on these samples, what clips most first.

    The float graph's values, since a ReLU or a clamp may be part of the rounding: what that cuts off is meant.
    """
    inputs = {port.name for port in plain.graph.input}
    usages = _pair_usages(quantized, inputs | set(Index(plain).producers))
    inner = list(dict.fromkeys(name for name, _ in usages.values() if name not in inputs))
    watched = copy_model(plain)
    add_outputs(watched, inner)
    session = ort.open_model(watched, "disabled", outputs=inner or None)
    for _, batch in samples:
        values: dict[str, Any] = dict(batch)
        if inner:
            values.update(zip(inner, session.run(batch), strict=True))
        for name, usage in usages.values():
            usage.add(np.asarray(values[name], np.float64))
    ranges = [usage.summarize() for _, usage in usages.values() if usage.total]
    return tuple(sorted(ranges, key=lambda each: (-each.clipped, -each.unused)))


def _pair_usages(quantized: onnx.ModelProto, known: set[str]) -> dict[str, tuple[str, _Usage]]:
    """For each rounded value its name among those that the float graph knows: its own, or that of the graph output behind the pair."""
    usages = {}
    for pair in find_pairs(quantized):
        name = next((name for name in (pair.value, *pair.results) if name in known), None)
        if name is not None:
            usages[pair.value] = (name, _Usage(pair))
    return usages


def examine(
    ranges: Sequence[CalibrationRange], chosen_by: Sequence[CalibrationRange] | None
) -> list[Finding]:
    """The worst of them in words; nothing where every range fits. `chosen_by` is the same on the data that chose them, None where that is all there is."""
    if chosen_by is None:
        return _examine_unused(ranges, "the calibration data itself")
    where = "samples that no range was chosen by"
    return [*_examine_clipped(ranges, chosen_by, where), *_examine_unused(ranges, where)]


def _examine_clipped(
    ranges: Sequence[CalibrationRange], chosen_by: Sequence[CalibrationRange], where: str
) -> list[Finding]:
    intended = {each.tensor: each.clipped for each in chosen_by}
    clipped = [
        each
        for each in ranges
        if each.clipped > max(CLIPPED, _MORE * intended.get(each.tensor, 0.0))
        and each.clipped * each.values >= _COUNTED
    ]
    if not clipped:
        return []
    worst = clipped[0]
    what = f"the range of `{worst.tensor}` clips {worst.clipped:.2%} of its values on {where}"
    if len(clipped) > 1:
        what += f"; {len(clipped)} of {len(ranges)} ranges clip more than {CLIPPED:.1%}"
    return [
        Finding(
            code="range-clips",
            what=what,
            help="calibrate with more data, or with data like that which is served",
        )
    ]


def _examine_unused(ranges: Sequence[CalibrationRange], where: str) -> list[Finding]:
    unused = sorted(
        (each for each in ranges if each.unused > UNUSED), key=lambda each: -each.unused
    )
    if not unused:
        return []
    worst = unused[0]
    what = f"{worst.unused:.0%} of the range of `{worst.tensor}` is unused on {where}"
    if len(unused) > 1:
        what += f"; {len(unused)} of {len(ranges)} ranges leave more than half"
    return [
        Finding(
            code="range-unused",
            what=what,
            help="a few outliers of the calibration data stretch it: look at them, or try `--calibrator percentile`",
        )
    ]
