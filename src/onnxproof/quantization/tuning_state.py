"""What tuning works on: the budget, what was tried, and the graph as it stands."""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.blockwise.result import Blockwise
from onnxproof.quantization.evaluation import Evaluator
from onnxproof.quantization.paired_metric import CONFIDENCE, Metric, Outcome
from onnxproof.quantization.scoring import Score
from onnxproof.quantization.trials import QuantizationTrials

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be lost, and how long it may take to find out."""

    max_drop: float | None = None
    """The task metric may fall by this much (0.005 is half a point)."""
    max_latency: float | None = None
    """Seconds of one pass on one thread."""
    min_sqnr: float = 30.0
    """Without a metric: output SQNR below this is worth a search."""
    seconds: float = 120.0
    confidence: float = CONFIDENCE
    """Of the interval that must lie within a largest loss; 0 takes the estimate, however few the samples."""
    max_kl: float | None = None
    """Weights in blocks: the mean KL of the next token from the float model's may be this large, in nats."""
    max_perplexity: float | None = None
    """The same for the perplexity, which may rise by this share (0.02 is 2 %)."""
    bits: float | None = None
    """Bits a weight, with scales and zero points, over all weights in blocks."""
    max_size: int | None = None
    """Bytes of the file."""

    @property
    def asks_losses(self) -> bool:
        """True when losses of text decide how many bits there are."""
        return self.max_kl is not None or self.max_perplexity is not None

    def allows(self, seconds: float, size: int) -> bool:
        """Whether a pass may take that long, and the file have so many bytes."""
        in_time = self.max_latency is None or seconds <= self.max_latency
        return in_time and (self.max_size is None or size <= self.max_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that was tried."""

    name: str
    what: str
    before_db: float
    after_db: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One quantized graph on the way: what it costs and what it keeps."""

    name: str
    sqnr_db: float
    latency_s: float
    size: int
    metric: float | None = None
    best: bool = False
    """True when no other point is better in every respect."""


@dataclass(slots=True, kw_only=True)
class Tuning:
    """Everything that was tried, and the quantized graph as it stands."""

    trials: QuantizationTrials
    evaluator: Evaluator | None
    plain: onnx.ModelProto
    budget: Budget
    steps: list[Step] = field(default_factory=list)
    points: list[tuple[str, onnx.ModelProto, float]] = field(default_factory=list)
    metric: Metric | None = None
    kept_float: tuple[str, ...] = ()
    blockwise: Blockwise | None = None

    def outcome(self) -> Outcome:
        """Whether the budget holds for the graph as it stands: by the metric where one may not drop, else by decibels."""
        if self.evaluator is None or self.budget.max_drop is None:
            return judge_sqnr(self.trials.score, self.budget)
        if self.metric is None:
            self.metric = self.evaluator.compare(self.plain, self.trials.quantized)
        return self.metric.outcome(self.budget.max_drop)

    def take(
        self, quantized: onnx.ModelProto, score: Score, kept_float: tuple[str, ...] = ()
    ) -> None:
        """Go on with another quantized graph."""
        self.trials.quantized = quantized
        self.trials.score = score
        self.metric = None
        self.kept_float = kept_float


def judge_sqnr(score: Score, budget: Budget) -> Outcome:
    """Whether a graph has the decibels that are aimed at where no metric is given."""
    if score.sqnr_db >= budget.min_sqnr:
        return Outcome.SHOWN
    return Outcome.BEYOND


def single_sample(trials: QuantizationTrials) -> dict[str, Array]:
    """The first kept sample, alone where the graph's batch may vary."""
    batch = trials.samples[0][1]
    dims = next(iter(trials.model.graph.input)).type.tensor_type.shape.dim
    if not dims or dims[0].HasField("dim_value"):
        return dict(batch)
    return {name: array[:1] if array.ndim else array for name, array in batch.items()}


def deadline_after(seconds: float) -> float:
    """So many seconds from now, on the monotonic clock."""
    if not math.isfinite(seconds):
        return math.inf
    return time.monotonic() + seconds
