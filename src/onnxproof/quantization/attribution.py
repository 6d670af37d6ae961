"""Which change would recover how much: a quantized graph of any tool, with one thing changed at a time.

Every counterfactual is the candidate itself with one change (other ranges, a scale for each channel, float weights ...), run on the
user's data. Alone, each says what it would recover; `waterfall` puts one on top of the other.
"""

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
from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.qdq import (
    Pair,
    Weight,
    find_biases,
    find_folded_relus,
    find_pairs,
    find_weights,
)
from onnxproof.quantization.qdq_edit import with_floats, with_ranges, without_rounding
from onnxproof.quantization.scoring import REFUSED, Outputs, Score, compare, compute_outputs
from onnxproof.quantization.weight_matching import find_original, is_saturated
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
Limits = tuple[Array, Array]
MOST_DB = 200.0
"""Levels beyond this can't be measured: float64 itself ends at about 300 dB."""
_TRIMMING = ("mse", "percentile:99.99", "percentile:99.9")
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
"""Operators that runtimes make part of the layer before them."""


@dataclass(eq=False)
class Study:
    """A quantized graph, the outputs that it should give, and the float weights it was made from, where they are known.

    Each counterfactual takes the graph to change (the candidate, where none is given), and gives None where there is nothing to change.
    """

    model: onnx.ModelProto
    samples: Sequence[Batch]
    reference_outputs: Outputs
    floats: Mapping[str, Array] = field(default_factory=dict)

    def sqnr_db(self, model: onnx.ModelProto, optimisation: str = "disabled") -> float:
        """The SQNR of a graph in dB; minus infinity where the runtime refuses it."""
        return self.score(model, optimisation).sqnr_db

    def score(self, model: onnx.ModelProto, optimisation: str = "disabled") -> Score:
        """SQNR and agreement of a graph; nothing is left where the runtime refuses it."""
        try:
            outputs = compute_outputs(model, self.samples, optimisation)
        except OnnxproofError:
            return REFUSED
        return compare(self.reference_outputs, outputs)

    @cached_property
    def served_db(self) -> float:
        """The candidate as it is served."""
        return self.sqnr_db(self.model, "")

    @cached_property
    def graph_score(self) -> Score:
        """The candidate as its graph says it."""
        return self.score(self.model)

    @property
    def graph_db(self) -> float:
        """Its SQNR in dB."""
        return self.graph_score.sqnr_db

    @cached_property
    def pairs(self) -> list[Pair]:
        """What is rounded: by one scale, or by one for each channel."""
        return find_pairs(self.model)

    @cached_property
    def statistics(self) -> dict[str, Statistics]:
        """The values before each rounding, as a graph that rounds nothing (as far as its float weights are known) has them on this data."""
        model = without_rounding(self.restore_float_weights() or self.model, relus=self._relus)
        index = Index(model)
        names: dict[str, str] = {}
        for pair in self.pairs:  # the producer of a graph output took the output's name over
            names[pair.value] = pair.value if pair.value in index.producers else pair.results[0]
        statistics = {
            value: Statistics(axis=index.channel_axis(name)) for value, name in names.items()
        }
        inner = [name for name in names.values() if name in index.producers]
        self._observe(model, inner, {name: value for value, name in names.items()}, statistics)
        return {value: stats for value, stats in statistics.items() if stats.count}

    def _observe(
        self,
        model: onnx.ModelProto,
        inner: list[str],
        values: Mapping[str, str],
        statistics: Mapping[str, Statistics],
    ) -> None:
        """Run the samples, and add inner values (and graph inputs) to the statistics of the values whose names they are."""
        watched = copy_model(model)
        add_outputs(watched, inner)
        session = ort.open_model(watched, "disabled", outputs=inner or None)
        for turn, (label, batch) in enumerate(self.samples):
            for name, array in zip(session.output_names, session.run(batch), strict=True):
                if name in values and array is not None:
                    statistics[values[name]].update(array, label, turn)
            for name in set(statistics) & set(batch):
                statistics[name].update(batch[name], label, turn)

    def observed_range(self, pair: Pair) -> tuple[float, float]:
        """What the data reaches, cut where ReLU or Clip is part of the rounding: it can't ask for what the graph never gave."""
        low, high = min_max(self.statistics[pair.value], 256, False)
        if self._has_relu(pair):
            low = 0.0
        return low, high

    def _has_relu(self, pair: Pair) -> bool:
        """True where a ReLU was folded into the rounding."""
        return pair.value in self._relus

    @cached_property
    def _relus(self) -> set[str]:
        return find_folded_relus(self.model)

    def _keeps_symmetry(self, pair: Pair) -> bool:
        """Whether other ranges of this pair are symmetric, too: signed types are made for it, unsigned ones are where the whole graph is (PyTorch's symmetric quint8)."""
        if not pair.symmetric:
            return False
        return pair.dtype.startswith("int") or self._unsigned_symmetric

    @cached_property
    def _unsigned_symmetric(self) -> bool:
        """True when zero is the exact middle of all 8-bit unsigned roundings: of one it may be chance, of several it is the scheme."""
        unsigned = [pair for pair in self.pairs if pair.dtype == "uint8"]
        return len(unsigned) > 1 and all(bool((pair.zero == 128).all()) for pair in unsigned)

    # counterfactuals: activations --------------------------------------------------------------------------------------------------

    def fuse_layers(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Without the rounding between a layer and what should be part of it."""
        index = Index(self.model)
        between = [pair.value for pair in self.pairs if _separates_layer(index, pair)]
        if not between:
            return None
        return without_rounding(model or self.model, between, self._relus)

    def recalibrate(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Ranges that this data asks for; types and symmetry stay."""
        limits = {
            pair.value: self.needed_range(pair)
            for pair in self.pairs
            if pair.value in self.statistics
        }
        return self._replace_ranges(model, limits)

    def needed_range(self, pair: Pair) -> Limits:
        """The range that the data asks for: of each channel where the rounding has one for each."""
        stats = self.statistics[pair.value]
        lows, highs = stats.channel_low, stats.channel_high
        if lows is None or highs is None or pair.scale.size == 1 or lows.size != pair.scale.size:
            return _fit_symmetry(*self.observed_range(pair), self._keeps_symmetry(pair))
        if self._has_relu(pair):
            lows = np.zeros_like(lows)
        limits = [
            _fit_symmetry(low, high, self._keeps_symmetry(pair))
            for low, high in zip(lows, highs, strict=True)
        ]
        return np.asarray([low for low, _ in limits]), np.asarray([high for _, high in limits])

    def trim_ranges(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Ranges that give rare large values up: by the calibrator that serves the outputs best."""
        changed = [
            self._replace_ranges(model, self._calibrated_ranges(calibrator(name)))
            for name in _TRIMMING
        ]
        return max(
            (other for other in changed if other is not None), key=self.sqnr_db, default=None
        )

    def _calibrated_ranges(self, choose: Calibrator) -> dict[str, Limits]:
        limits = {}
        for pair in self.pairs:
            if pair.value in self.statistics and pair.scale.size == 1:
                low, high = choose(self.statistics[pair.value], 256, pair.symmetric)
                if self._has_relu(pair):
                    low = 0.0
                limits[pair.value] = _fit_symmetry(low, high, self._keeps_symmetry(pair))
        return limits

    def use_asymmetric_ranges(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """All levels for what the data reaches, where half of them lie where no data is."""
        limits = {}
        for pair in self.pairs:
            eight_bits = pair.dtype in ("int8", "uint8") and pair.scale.size == 1
            if pair.symmetric and eight_bits and pair.value in self.statistics:
                low, high = self.observed_range(pair)
                limits[pair.value] = (np.asarray(low), np.asarray(high))
        return self._replace_ranges(model, limits, dtype="uint8")

    def use_channel_scales(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """A scale for each channel of each activation: kernels can't do it, but it shows whether channels differ too much."""
        changed: onnx.ModelProto | None = None
        for pair in self.pairs:
            stats = self.statistics.get(pair.value)
            if pair.scale.size > 1 or stats is None or stats.axis is None:
                continue
            if stats.channel_low is None or stats.channel_high is None:
                continue
            low = np.minimum(stats.channel_low, 0.0)
            if self._has_relu(pair):
                low = np.zeros_like(stats.channel_low)
            high = np.maximum(np.maximum(stats.channel_high, low + 1e-9), 0.0)
            changed = with_ranges(
                changed or model or self.model,
                {pair.value: (low, high)},
                dtype="uint8",
                axis=stats.axis,
            )
        return changed

    def remove_rounding(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """No activation is rounded."""
        return without_rounding(model or self.model, relus=self._relus)

    def _replace_ranges(
        self,
        model: onnx.ModelProto | None,
        limits: Mapping[str, Limits],
        dtype: str | None = None,
    ) -> onnx.ModelProto | None:
        if not limits:
            return None
        return with_ranges(model or self.model, limits, dtype=dtype)

    # counterfactuals: weights ------------------------------------------------------------------------------------------------------

    def use_filter_scales(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Weights with a scale for each output channel, where they have one for all."""
        rounded = {
            weight.result: _round_by_filter(plain)
            for weight, plain in self.matched_weights
            if weight.scale.size == 1 and plain.ndim >= 2
        }
        if not rounded:
            return None
        model = model or self.model
        return with_floats(model, rounded | self._float_biases(model))

    def restore_float_weights(self, model: onnx.ModelProto | None = None) -> onnx.ModelProto | None:
        """Weights as they were before anything was rounded."""
        model = model or self.model
        floats = {weight.result: plain for weight, plain in self.matched_weights}
        floats |= self._float_biases(model)
        if not floats:
            return None
        return with_floats(model, floats)

    def restore_saturated_biases(
        self, model: onnx.ModelProto | None = None
    ) -> onnx.ModelProto | None:
        """Float biases where the integer ones ran into the end of their type."""
        saturated = [bias for bias in find_biases(self.model) if is_saturated(bias.integers).any()]
        floats = {}
        for bias in saturated:
            plain = find_original(bias, self.floats)
            if plain is not None:
                floats[bias.result] = plain
        if not floats:
            return None
        return with_floats(model or self.model, floats)

    def _float_biases(self, model: onnx.ModelProto) -> dict[str, Array]:
        """Rounding may leave nothing of a bias, so there its name is enough; but only where the layer's weight was found by its values."""
        matched = {weight.result for weight, _ in self.matched_weights}
        by_name = {
            node.input[2]
            for node in self.model.graph.node
            if len(node.input) > 2 and node.input[1] in matched
        }
        floats = {}
        for bias in find_biases(model):
            plain = find_original(bias, self.floats, by_name=bias.result in by_name)
            if plain is not None:
                floats[bias.result] = plain
        return floats

    @cached_property
    def matched_weights(self) -> list[tuple[Weight, Array]]:
        """Integer weights with the float weights they come from."""
        matched = []
        for weight in find_weights(self.model):
            if weight.integers.ndim > 1:
                plain = find_original(weight, self.floats)
                if plain is not None:
                    matched.append((weight, plain))
        return matched


def _separates_layer(index: Index, pair: Pair) -> bool:
    """True when a pair rounds between a layer and the only operator behind it, which should be part of the layer."""
    producer = index.producers.get(pair.value)
    if producer is None:
        return False
    if producer.op_type not in ("Conv", "Gemm", "MatMul", "BatchNormalization"):
        return False
    if len(pair.results) != 1 or pair.results[0] in index.outputs:
        return False
    consumers = index.consumers[pair.results[0]]
    if len(consumers) != 1 or consumers[0].op_type not in _FUSES:
        return False
    if consumers[0].op_type not in ("Mul", "Add"):
        return True
    # a bias is part of the layer; a sum of two rounded branches is no lack of fusion
    others = [name for name in consumers[0].input if name != pair.results[0]]
    return all(_is_constant(index, name) for name in others)


def _is_constant(index: Index, name: str) -> bool:
    """A weight, or a weight kept in integers behind its DequantizeLinear."""
    if name in index.weights:
        return True
    producer = index.producers.get(name)
    if producer is None or producer.op_type != "DequantizeLinear":
        return False
    return producer.input[0] in index.weights


def _round_by_filter(plain: Array) -> Array:
    """A float weight rounded to 8 bits with a scale for each output channel; of a matrix, the axis along which ranges differ most."""
    axis = 0
    if plain.ndim == 2:
        axis = int(np.argmax([_range_ratio(plain, candidate) for candidate in range(2)]))
    other_axes = tuple(other for other in range(plain.ndim) if other != axis)
    step = np.maximum(np.abs(plain).max(other_axes, keepdims=True), 1e-30) / 127
    return np.asarray(np.rint(plain / step) * step)


def _range_ratio(plain: Array, axis: int) -> float:
    """The largest channel's range over the smallest one's."""
    ranges = np.abs(plain).max(tuple(other for other in range(plain.ndim) if other != axis))
    return float(ranges.max() / max(ranges.min(), 1e-30))


def _fit_symmetry(low: Any, high: Any, symmetric: bool) -> Limits:
    """A range that holds zero, or is symmetric around it; never of no width."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if symmetric:
        high = max(-low, high)
        low = -high
    if not high > low:
        high = low + 1e-6
    return np.asarray(low), np.asarray(high)


def gain(before: float, after: float) -> float:
    """Decibels between two levels, with what is beyond measure capped."""
    return min(after, MOST_DB) - max(min(before, MOST_DB), -100.0)
