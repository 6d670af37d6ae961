"""How the ranges of a quantized graph fit data that did not choose them: what each one clips, and how much of it nobody uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.float_graph import copied
from onnxproof.quantization.qdq import Pair, pairs
from onnxproof.results import CalibrationRange, Finding
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
CLIPPED, UNUSED = 1e-3, 0.5
"""Beyond this share of values clipped, or of the range unused, a range is told."""
_MORE = 2.0
"""Times as much as on the data that chose the range: what a calibrator gives up on purpose is no finding."""
_COUNTED = 20
"""Values beyond a range that make a share of a small tensor more than chance."""
_SLACK = 0.5
"""Steps beyond the last level that still round to it."""


@dataclass(slots=True)
class _Seen:
    """One rounded value, over the batches so far."""

    pair: Pair
    low: float = np.inf
    high: float = -np.inf
    outside: int = 0
    total: int = 0

    def look(self, array: Array) -> None:
        """Count what lies beyond the range; the range of each channel where there are several."""
        if not array.size:
            return
        shape = [1] * array.ndim
        if self.pair.scale.size > 1:
            shape[self.pair.axis] = -1
        low, high = (end.reshape(shape) for end in self.pair.limits)
        slack = _SLACK * self.pair.scale.reshape(shape)
        self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))
        self.outside, self.total = (
            self.outside + int(((array < low - slack) | (array > high + slack)).sum()),
            self.total + array.size,
        )

    def told(self) -> CalibrationRange:
        """The range beside what was seen."""
        low, high = (
            float(pick(end)) for pick, end in zip((np.min, np.max), self.pair.limits, strict=True)
        )
        used = (
            max(min(high, self.high) - max(low, self.low), 0.0) / (high - low)
            if high > low
            else 1.0
        )
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


def coverage(
    quantized: onnx.ModelProto, samples: Sequence[Batch], plain: onnx.ModelProto
) -> tuple[CalibrationRange, ...]:
    """Every range of the graph against the values of its float graph on these samples, what clips most first.

    The float graph's values, since a ReLU or a clamp may be part of the rounding: what that cuts off is meant.
    """
    ports = {port.name for port in plain.graph.input}
    known = ports | {name for node in plain.graph.node for name in node.output}
    seen = {
        pair.value: (
            next(name for name in (pair.value, *pair.results) if name in known),
            _Seen(pair),
        )
        for pair in pairs(quantized)
        if known & {pair.value, *pair.results}
    }
    inner = list(dict.fromkeys(name for name, _ in seen.values() if name not in ports))
    watched = copied(plain)
    add_outputs(watched, inner)
    session = ort.open(watched.SerializeToString(), "disabled", outputs=inner or None)
    for _, batch in samples:
        found = {**batch, **(dict(zip(inner, session.run(batch), strict=True)) if inner else {})}
        for name, each in seen.values():
            each.look(np.asarray(found[name], np.float64))
    return tuple(
        sorted(
            (each.told() for _, each in seen.values() if each.total),
            key=lambda r: (-r.clipped, -r.unused),
        )
    )


def examine(
    ranges: Sequence[CalibrationRange], chosen_by: Sequence[CalibrationRange] | None
) -> list[Finding]:
    """The worst of them in words; nothing where every range fits. `chosen_by` is the same on the data that chose them, None where that is all there is."""
    where = (
        "samples that no range was chosen by"
        if chosen_by is not None
        else "the calibration data itself"
    )
    meant = {r.tensor: r.clipped for r in chosen_by or ()}
    clips = [
        r
        for r in ranges
        if chosen_by is not None
        and r.clipped > max(CLIPPED, _MORE * meant.get(r.tensor, 0.0))
        and r.clipped * r.values >= _COUNTED
    ]
    wide = sorted((r for r in ranges if r.unused > UNUSED), key=lambda r: -r.unused)
    found = []
    if clips:
        found.append(
            Finding(
                code="range-clips",
                what=f"the range of `{clips[0].tensor}` clips {clips[0].clipped:.2%} of its values on {where}"
                + (
                    f"; {len(clips)} of {len(ranges)} ranges clip more than {CLIPPED:.1%}"
                    if len(clips) > 1
                    else ""
                ),
                help="calibrate with more data, or with data like that which is served",
            )
        )
    if wide:
        found.append(
            Finding(
                code="range-unused",
                what=f"{wide[0].unused:.0%} of the range of `{wide[0].tensor}` is unused on {where}"
                + (
                    f"; {len(wide)} of {len(ranges)} ranges leave more than half"
                    if len(wide) > 1
                    else ""
                ),
                help="a few outliers of the calibration data stretch it: look at them, or try `--calibrator percentile`",
            )
        )
    return found
