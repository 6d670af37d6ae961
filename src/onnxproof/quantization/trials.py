"""Where quantized graphs are made and scored: the float graph, its statistics, the samples kept for judging, and a count of what was tried."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.calibration.observer import Observer
from onnxproof.quantization.calibration.ranges import Range, calibrator
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.insert_qdq import Plan, insert
from onnxproof.quantization.scoring import REFUSED, Outputs, Score, compare, compute_outputs
from onnxproof.quantization.trial_cache import TrialCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What a recipe made: another float graph, or another quantized one, or other ranges."""

    what: str
    model: onnx.ModelProto | None = None
    quantized: onnx.ModelProto | None = None
    ranges: Mapping[str, Range] | None = None
    changes_values: bool = False
    """True when inner values of the float graph are other ones now, so that their statistics must be taken again."""
    required: bool = False
    """True when it is kept whatever it costs here: it saves the outputs on another machine."""


@dataclass(slots=True, kw_only=True)
class QuantizationTrials:
    """One float graph with what is known of its values, a plan for quantizing it, and the quantized graph as it stands."""

    model: onnx.ModelProto
    stats: Mapping[str, Statistics]
    plan: Plan
    samples: Sequence[Batch]
    """Kept in memory for judging and for recipes that need values."""
    reference_outputs: Outputs = field(default_factory=list)
    """The float graph's."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    quantized: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    """The graph as it is quantized now, for recipes that change it."""
    score: Score = REFUSED
    trial_cache: TrialCache | None = None
    target: str = ""
    """The CPU that will serve: avx2 or vnni; empty for this one."""
    report_progress: Callable[[str], None] = lambda what: None
    deadline: float = math.inf
    """On the monotonic clock: a search ends there with the best it has."""

    @property
    def deadline_passed(self) -> bool:
        """True when the time for tuning is over."""
        return time.monotonic() > self.deadline

    def choose_ranges(self, plan: Plan | None = None) -> dict[str, Range]:
        """A range for every value, by the plan's calibrator."""
        plan = plan or self.plan
        choose = calibrator(plan.calibrator)
        return {
            name: choose(stats, plan.levels, plan.symmetric) for name, stats in self.stats.items()
        }

    def insert(
        self, plan: Plan | None = None, ranges: Mapping[str, Range] | None = None
    ) -> onnx.ModelProto:
        """The float graph quantized by a plan and ranges."""
        if ranges is None:
            ranges = self.ranges
        return insert(self.model, ranges, plan or self.plan).model

    def score_model(self, model: onnx.ModelProto) -> Score:
        """Score a graph on the kept samples; one that the runtime refuses scores nothing."""
        if self.trial_cache is None:
            return self._measure(model)
        key, known = self.trial_cache.look_up(model)
        if known is not None:
            return known
        score = self._measure(model)
        self.trial_cache.write(key, score)
        return score

    def _measure(self, model: onnx.ModelProto) -> Score:
        try:
            return compare(self.reference_outputs, compute_outputs(model, self.samples))
        except OnnxproofError:
            return REFUSED

    def quantize_and_score(self) -> "QuantizationTrials":
        """Quantize by the plan as it stands, and score."""
        self.ranges = self.ranges or self.choose_ranges()
        self.quantized = self.insert()
        self.score = self.score_model(self.quantized)
        return self

    def with_applied(self, applied: Applied) -> "QuantizationTrials":
        """A copy to which what a recipe made is applied."""
        other = replace(self)
        if applied.model is not None:
            other.model = applied.model
            if applied.changes_values:
                other.stats = recompute_statistics(applied.model, self.samples)
                other.ranges = {}
            return other.quantize_and_score()
        if applied.ranges is not None:
            other.ranges = applied.ranges
        other.quantized = applied.quantized if applied.quantized is not None else other.insert()
        other.score = other.score_model(other.quantized)
        return other


def recompute_statistics(model: onnx.ModelProto, samples: Sequence[Batch]) -> dict[str, Statistics]:
    """Statistics of a changed float graph, from the samples that were kept."""
    observer = Observer(model)
    statistics: dict[str, Statistics] = {}
    for turn, (label, batch) in enumerate(samples):
        observer.observe_batch(batch, statistics, label, turn)
    return {name: stats for name, stats in statistics.items() if stats.count}
