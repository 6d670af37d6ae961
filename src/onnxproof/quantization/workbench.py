"""Where quantized graphs are made and scored: the float graph, its statistics, the samples kept for judging, and a count of what was tried."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.calibration.observe import Observer
from onnxproof.quantization.calibration.ranges import Range, calibrator
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.insert_qdq import Plan, insert
from onnxproof.runtimes import ort
from onnxproof.verification.quantized import decibels

if TYPE_CHECKING:
    from onnxproof.quantization.tuning_journal import Journal

Array = np.ndarray[Any, Any]
Answers = list[list[Array]]
"""Outputs by batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How near a graph's answers are to the float graph's."""

    sqnr_db: float
    """Of the worst output."""
    agreement: float | None
    """Share of samples whose best class is the same, where outputs look like scores."""

    def better(self, other: "Score", margin: float = 0.0) -> bool:
        """More decibels, by more than a margin."""
        return self.sqnr_db > other.sqnr_db + margin


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
    """True when it is kept whatever it costs here: it saves the answers on another machine."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """One float graph with what is known of its values, and a plan for quantizing it."""

    model: onnx.ModelProto
    stats: Mapping[str, Statistics]
    plan: Plan
    samples: Sequence[Batch]
    """Kept in memory for judging and for recipes that need values."""
    answers: Answers = field(default_factory=list)
    """The float graph's."""
    ranges: Mapping[str, Range] = field(default_factory=dict)
    quantized: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    """The graph as it is quantized now, for recipes that change it."""
    score: Score = field(default_factory=lambda: Score(sqnr_db=-math.inf, agreement=None))
    journal: "Journal | None" = None
    target: str = ""
    """The CPU that will serve: avx2 or vnni; empty for this one."""
    tell: Callable[[str], None] = lambda what: None
    deadline: float = math.inf
    """On the monotonic clock: a search ends there with the best it has."""

    @property
    def late(self) -> bool:
        """True when the time for tuning is over."""
        return time.monotonic() > self.deadline

    def ranged(self, plan: Plan | None = None) -> dict[str, Range]:
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
        return insert(
            self.model, self.ranges if ranges is None else ranges, plan or self.plan
        ).model

    def judged(self, model: onnx.ModelProto) -> Score:
        """Score a graph on the kept samples; one that the runtime refuses scores nothing."""
        key, known = self.journal.recall(model) if self.journal is not None else ("", None)
        if known is not None:
            return known
        try:
            found = compare(self.answers, answers(model, self.samples))
        except OnnxproofError:
            found = Score(sqnr_db=-math.inf, agreement=None)
        if self.journal is not None:
            self.journal.write(key, found)
        return found

    def settle(self) -> "Bench":
        """Quantize by the plan as it stands, and score."""
        self.ranges = self.ranges or self.ranged()
        self.quantized = self.insert()
        self.score = self.judged(self.quantized)
        return self

    def took(self, applied: Applied) -> "Bench":
        """A bench on which what a recipe made is applied."""
        other = replace(self)
        if applied.model is not None:
            other.model = applied.model
            if applied.changes_values:
                other.stats, other.ranges = restated(applied.model, self.samples), {}
            return other.settle()
        other.ranges = self.ranges if applied.ranges is None else applied.ranges
        other.quantized = applied.quantized if applied.quantized is not None else other.insert()
        other.score = other.judged(other.quantized)
        return other


def restated(model: onnx.ModelProto, samples: Sequence[Batch]) -> dict[str, Statistics]:
    """Statistics of a changed float graph, from the samples that were kept."""
    observer, found = Observer(model), dict[str, Statistics]()
    for turn, (label, batch) in enumerate(samples):
        observer.look(batch, found, label, turn)
    return {name: stats for name, stats in found.items() if stats.count}


def answers(model: onnx.ModelProto, samples: Sequence[Batch], level: str = "") -> Answers:
    """The outputs of a graph on the kept samples."""
    session = ort.open(model.SerializeToString(), level)
    return [[array for array in session.run(batch) if array is not None] for _, batch in samples]


def compare(wanted: Answers, found: Answers) -> Score:
    """SQNR of the worst output over all batches, and agreement of the best class."""
    levels, same, count = [], 0, 0
    for place in range(len(wanted[0])):
        signal = error = 0.0
        for want, got in zip(wanted, found, strict=True):
            w, g = want[place], got[place]
            if w.dtype.kind != "f":
                same, count = same + int((w == g).sum()), count + w.size
                continue
            w, g = w.astype(np.float64), g.astype(np.float64)
            signal, error = signal + float((w * w).sum()), error + float(((g - w) ** 2).sum())
            if w.ndim >= 2 and 2 <= w.shape[-1] <= 4096:
                same, count = (
                    same + int((w.argmax(-1) == g.argmax(-1)).sum()),
                    count + int(np.prod(w.shape[:-1])),
                )
        if signal or error:
            levels.append(decibels(signal, error) if math.isfinite(error) else -math.inf)
    return Score(sqnr_db=min(levels, default=math.inf), agreement=same / count if count else None)
