"""Where the points went: a quantized graph of any tool, with one thing after the other granted to it.

Every counterfactual is the candidate itself with one change (other ranges, a scale for each channel, float weights ...), run on the
user's data. Alone, each says what it would recover; one after the other, they are a waterfall from the served model to float, whose parts
add up to the loss by construction.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.calibration.ranges import Calibrator, calibrator, min_max
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import Index, copied
from onnxproof.quantization.qdq import (
    Pair,
    Weight,
    biases,
    clips,
    pairs,
    weights,
    with_floats,
    with_ranges,
    without_rounding,
)
from onnxproof.quantization.workbench import Answers, answers, compare
from onnxproof.results import Share
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
_ALWAYS = ("runtime", "8-bit activations", "8-bit weights")
"""Steps that are part of every waterfall; the others only where they help."""
_WORTH_DB = 1.0
_TRIMMING = ("mse", "percentile:99.99", "percentile:99.9")
_ALIKE = 0.35
"""Relative rms between a dequantized weight and the float weight it comes from: 4-bit weights stay below."""
_FUSES = (
    "BatchNormalization",
    "Relu",
    "Clip",
    "LeakyRelu",
    "PRelu",
    "HardSwish",
    "Sigmoid",
    "Mul",
    "Add",
)


@dataclass(eq=False)
class Study:
    """A quantized graph, the answers that it should give, and the float weights it was made from, where they are known."""

    model: onnx.ModelProto
    samples: Sequence[Batch]
    wanted: Answers
    floats: Mapping[str, Array] = field(default_factory=dict)

    def level(self, model: onnx.ModelProto, where: str = "disabled") -> float:
        """The SQNR of a graph in dB; minus infinity where the runtime refuses it."""
        try:
            return compare(self.wanted, answers(model, self.samples, where)).sqnr_db
        except OnnxproofError:
            return -math.inf

    @cached_property
    def served(self) -> float:
        """The candidate as it is served."""
        return self.level(self.model, "")

    @cached_property
    def said(self) -> float:
        """The candidate as its graph says it."""
        return self.level(self.model)

    @cached_property
    def rounded(self) -> list[Pair]:
        """What is rounded: by one scale, or by one for each channel."""
        return pairs(self.model)

    @cached_property
    def seen(self) -> dict[str, Statistics]:
        """The values before each rounding, as a graph that rounds nothing (as far as its float weights are known) has them on this data."""
        names = list(dict.fromkeys(pair.value for pair in self.rounded))
        model = without_rounding(self.float_weights() or self.model, relus=self._relus)
        index = Index(model)
        shown = {
            pair.value: pair.value if pair.value in index.makers else pair.results[0]
            for pair in self.rounded
        }  # an output's maker took its name
        inner = [shown[name] for name in names if shown[name] in index.makers]
        watched = copied(model)
        add_outputs(watched, inner)
        session = ort.open(watched.SerializeToString(), "disabled", outputs=inner or None)
        axes = {name: index.channel_axis(shown[name]) for name in names}
        known = {shown[name]: name for name in names}
        found = {name: Statistics(axis=axes[name]) for name in names}
        for turn, (label, batch) in enumerate(self.samples):
            for name, array in zip(session.output_names, session.run(batch), strict=True):
                if name in known and array is not None:
                    found[known[name]].update(array, label, turn)
            for name in set(names) & set(batch):
                found[name].update(batch[name], label, turn)
        return {name: stats for name, stats in found.items() if stats.count}

    def reach(self, pair: Pair) -> tuple[float, float]:
        """What the data reaches, cut where ReLU or Clip is part of the rounding: it can't ask for what the graph never gave."""
        low, high = min_max(self.seen[pair.value], 256, False)
        if self._clips(pair):
            low = 0.0
        return low, high

    def _clips(self, pair: Pair) -> bool:
        """True where a ReLU was folded into the rounding."""
        return pair.value in self._relus

    @cached_property
    def _relus(self) -> set[str]:
        return clips(self.model)

    # what can be granted -----------------------------------------------------------------------------------------------------------

    def fused(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Without the rounding between a layer and what should be part of it."""
        index = Index(self.model)
        between = [
            pair.value
            for pair in self.rounded
            if pair.value in index.makers
            and index.makers[pair.value].op_type in ("Conv", "Gemm", "MatMul", "BatchNormalization")
            and len(pair.results) == 1
            and pair.results[0] not in index.outputs
            and [r.op_type for r in index.readers[pair.results[0]]] in ([kind] for kind in _FUSES)
            and self._unfolded(index, pair)
        ]
        return without_rounding(model or self.model, between, self._relus) if between else None

    def _unfolded(self, index: Index, pair: Pair) -> bool:
        """An activation or norm behind it, or a bias: adding two rounded branches is no lack of fusion."""
        reader = index.readers[pair.results[0]][0]
        if reader.op_type not in ("Mul", "Add"):
            return True
        others = [name for name in reader.input if name != pair.results[0]]
        return all(
            name in index.weights
            or (
                name in index.makers
                and index.makers[name].op_type == "DequantizeLinear"
                and index.makers[name].input[0] in index.weights
            )
            for name in others
        )

    def recalibrated(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Ranges that this data asks for; types and symmetry stay."""
        return self._ranged(
            {pair.value: self._asked(pair) for pair in self.rounded if pair.value in self.seen},
            model,
        )

    def _asked(self, pair: Pair) -> tuple[Array, Array]:
        """The range that the data asks for: of each channel where the rounding has one for each."""
        stats = self.seen[pair.value]
        if (
            pair.scale.size == 1
            or stats.channel_low is None
            or stats.channel_high is None
            or stats.channel_low.size != pair.scale.size
        ):
            return _shaped(*self.reach(pair), pair)
        each = [
            _shaped(0.0 if self._clips(pair) else low, high, pair)
            for low, high in zip(stats.channel_low, stats.channel_high, strict=True)
        ]
        return np.asarray([low for low, _ in each]), np.asarray([high for _, high in each])

    def trimmed(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Ranges that give rare large values up: by the calibrator that serves the answers best."""
        made = [self._ranged(self._cut(calibrator(name)), model) for name in _TRIMMING]
        return max((m for m in made if m is not None), key=self.level, default=None)

    def _cut(self, choose: Calibrator) -> dict[str, tuple[Array, Array]]:
        limits = {}
        for pair in self.rounded:
            if pair.value in self.seen and pair.scale.size == 1:
                low, high = choose(self.seen[pair.value], 256, pair.symmetric)
                limits[pair.value] = _shaped(0.0 if self._clips(pair) else low, high, pair)
        return limits

    def asymmetric(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """All levels for what the data reaches, where half of them lie where no data is."""
        chosen = [
            pair
            for pair in self.rounded
            if pair.symmetric
            and pair.scale.size == 1
            and pair.value in self.seen
            and pair.dtype in ("int8", "uint8")
        ]
        limits = {pair.value: self.reach(pair) for pair in chosen}
        return (
            self._ranged(
                {name: (np.asarray(low), np.asarray(high)) for name, (low, high) in limits.items()},
                model,
                dtype="uint8",
            )
            if limits
            else None
        )

    def by_channel(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """A scale for each channel of each activation: not what kernels can do, but what tells whether channels differ too much."""
        made, done = model or self.model, 0
        for pair in self.rounded:
            stats = self.seen.get(pair.value)
            if (
                pair.scale.size > 1
                or stats is None
                or stats.channel_low is None
                or stats.channel_high is None
                or stats.axis is None
            ):
                continue
            low = (
                np.zeros_like(stats.channel_low)
                if self._clips(pair)
                else np.minimum(stats.channel_low, 0.0)
            )
            high = np.maximum(stats.channel_high, low + 1e-9)
            made, done = (
                with_ranges(
                    made, {pair.value: (low, np.maximum(high, 0.0))}, dtype="uint8", axis=stats.axis
                ),
                done + 1,
            )
        return made if done else None

    def sixteen(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """The same ranges with 65,536 levels."""
        limits = {
            pair.value: pair.limits
            for pair in pairs(model or self.model)
            if "8" in pair.dtype and pair.scale.size == 1
        }
        return self._ranged(limits, model, dtype="uint16") if limits else None

    def unrounded(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """No activation is rounded."""
        return without_rounding(model or self.model, relus=self._relus)

    def by_filter(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Weights with a scale for each output channel, where they have one for all."""
        found = {}
        for weight, plain in self.matched:
            if weight.scale.size == 1 and plain.ndim >= 2:
                axis = (
                    0 if plain.ndim > 2 else int(np.argmax([_spread(plain, a) for a in range(2)]))
                )
                step = (
                    np.maximum(
                        np.abs(plain).max(
                            tuple(a for a in range(plain.ndim) if a != axis), keepdims=True
                        ),
                        1e-30,
                    )
                    / 127
                )
                found[weight.result] = np.rint(plain / step) * step
        return (
            with_floats(model or self.model, found | self._float_biases(model or self.model))
            if found
            else None
        )

    def float_weights(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Weights as they were before anything was rounded."""
        found = {weight.result: plain for weight, plain in self.matched} | self._float_biases(
            model or self.model
        )
        return with_floats(model or self.model, found) if found else None

    def unsaturated(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Float biases where the integer ones ran into the end of their type."""
        full = [
            bias
            for bias in biases(self.model)
            if (np.abs(bias.integers.astype(np.int64)) >= 2**31 - 1).any()
        ]
        found = {bias.result: plain for bias in full if (plain := self._original(bias)) is not None}
        return with_floats(model or self.model, found) if found else None

    def _float_biases(self, model: onnx.ModelProto) -> dict[str, Array]:
        """Rounding may leave nothing of a bias, so there its name is enough; but only where the layer's weight was found by its values."""
        known = {weight.result for weight, _ in self.matched}
        sure = {
            node.input[2]
            for node in self.model.graph.node
            if len(node.input) > 2 and node.input[1] in known
        }
        return {
            bias.result: plain
            for bias in biases(model)
            if (plain := self._original(bias, by_name=bias.result in sure)) is not None
        }

    @cached_property
    def matched(self) -> list[tuple[Weight, Array]]:
        """Integer weights with the float weights they come from."""
        return [
            (weight, plain)
            for weight in weights(self.model)
            if weight.integers.ndim > 1 and (plain := self._original(weight)) is not None
        ]

    def _original(self, weight: Weight, *, by_name: bool = False) -> Array | None:
        """The float array that a constant comes from, as it lies or transposed: by its values where they fit (or by its name, where tools keep it)."""
        here = weight.floats
        fits = np.abs(weight.integers.astype(np.int64)) < 2**31 - 1
        near = [
            (name, turned.astype(np.float64))
            for name, plain in self.floats.items()
            for turned in ((plain, plain.T) if plain.ndim == 2 else (plain,))
            if turned.shape == here.shape
        ]
        ranked = sorted(near, key=lambda pair: _apart(here[fits], pair[1][fits]))
        named = [
            plain
            for name, plain in ranked
            if by_name and name and (weight.name.startswith(name) or weight.result.startswith(name))
        ]
        alike = [
            plain
            for _, plain in ranked[:1]
            if _apart(here[fits], plain[fits]) < _ALIKE or not fits.all()
        ]
        return next(iter([*named, *alike]), None)

    def _ranged(
        self,
        limits: Mapping[str, tuple[Array, Array]],
        model: onnx.ModelProto | None,
        dtype: str | None = None,
    ) -> onnx.ModelProto | None:
        return with_ranges(model or self.model, limits, dtype=dtype) if limits else None

    # the waterfall -----------------------------------------------------------------------------------------------------------------

    def waterfall(self) -> list[Share]:
        """From the served model to float, each step on top of those before it; shares of the error's energy add up to one."""
        level, model = self.served, self.model
        steps = [("served", level)]
        for name, change in (
            ("runtime", None),
            ("quant-saturation", self.unsaturated),
            ("unfused", self.fused),
            ("calibration", self.recalibrated),
            ("outlier", self.trimmed),
            ("quant-scheme", self.asymmetric),
            ("channel-imbalance", self.by_channel),
            ("8-bit activations", self.unrounded),
            ("weights: one scale a tensor", self.by_filter),
            ("8-bit weights", self.float_weights),
        ):
            other = model if change is None else change(model)
            found = self.level(other) if other is not None else level
            if (
                other is None
                or not math.isfinite(found)
                or (found < level + _WORTH_DB and name not in _ALWAYS)
            ):
                continue  # a change that does not help is not made
            model, level = other, found
            steps.append((name, level))
        return _shares(steps)


def _shares(steps: Sequence[tuple[str, float]]) -> list[Share]:
    """What each step took of the error's energy; what is left is the rest. Levels beyond measure are capped, or a share would be no number."""
    steps = [(name, max(min(level, 200.0), -200.0)) for name, level in steps]
    whole = 10 ** (-steps[0][1] / 10)
    found, before = [], steps[0][1]
    for name, level in steps[1:]:
        energy = (10 ** (-before / 10) - 10 ** (-level / 10)) / whole if whole else 0.0
        found.append(
            Share(
                code=name, db=min(level, 200.0) - min(before, 200.0), share=energy, after_db=level
            )
        )
        before = level
    found.append(
        Share(
            code="rest",
            db=0.0,
            share=10 ** (-before / 10) / whole if whole else 0.0,
            after_db=before,
        )
    )
    return found


def _shaped(low: Any, high: Any, pair: Pair) -> tuple[Array, Array]:
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if pair.symmetric and pair.dtype.startswith("int"):
        high = max(-low, high)
        low = -high
    return np.asarray(low), np.asarray(high if high > low else low + 1e-6)


def _apart(a: Array, b: Array) -> float:
    size = float(np.sqrt((b**2).mean())) if b.size else 0.0
    return float(np.sqrt(((a - b) ** 2).mean())) / size if size else math.inf


def _spread(plain: Array, axis: int) -> float:
    reach = np.abs(plain).max(tuple(a for a in range(plain.ndim) if a != axis))
    return float(reach.max() / max(reach.min(), 1e-30))


def gain(before: float, after: float) -> float:
    """Decibels between two levels, with what is beyond measure capped."""
    return min(after, 200.0) - max(min(before, 200.0), -100.0)
