"""Tuning to a budget: recipes that cost no speed first, precision last; accepted by measurement, never on noise."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import UsageError
from onnxproof.quantizing import recipes
from onnxproof.quantizing.bench import Applied, Bench
from onnxproof.quantizing.census import latencies
from onnxproof.quantizing.evaluation import Evaluator, Metric
from onnxproof.quantizing.placement import arrangements
from onnxproof.quantizing.surgery import pairs, without_rounding

Array = np.ndarray[Any, Any]
RECIPES = ("equalize", "smooth", "fit-ranges", "correct-bias", "learn-rounding", "reduce-range")
"""In the order in which they are tried: what changes the float graph comes before what fits it."""
_SLOWER = 1.03
"""An arrangement that is slower than the fastest by more than this is not taken for its decibels."""
_SENSITIVE = 12
"""Values that are tried in float one by one, by what the statistics say of them."""


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
    """Everything that was tried, and the bench as it stands."""

    bench: Bench
    evaluator: Evaluator | None
    plain: onnx.ModelProto
    budget: Budget
    steps: list[Step] = field(default_factory=list)
    points: list[tuple[str, onnx.ModelProto, float]] = field(default_factory=list)
    metric: Metric | None = None
    kept_float: tuple[str, ...] = ()

    def met(self) -> bool:
        """True when the budget holds for the graph as it stands."""
        if self.evaluator is not None and self.budget.max_drop is not None:
            self.metric = self.evaluator.compare(self.plain, self.bench.quantized)
            return self.metric.within(self.budget.max_drop)
        return self.bench.score.sqnr_db >= self.budget.min_sqnr


def arrange(bench: Bench, exclude: frozenset[str]) -> tuple[Bench, list[tuple[str, onnx.ModelProto, float]]]:
    """The arrangement with the most decibels among the fastest."""
    tried: list[tuple[str, Bench]] = []
    for name, plan in arrangements(bench.model, bench.plan, exclude):
        bench.tell(f"arrangement {name}")
        other = replace(bench, plan=plan, ranges={})
        tried.append((name, other.settle()))
    if not tried:
        raise UsageError("nothing-to-quantize", "no node of this model can be quantized", notes=[f"it has {', '.join(sorted({n.op_type for n in bench.model.graph.node}))}"],
                         help="int8 serves Conv, MatMul and Gemm; try `--scheme dynamic` or `--scheme fp16`")
    times = latencies([other.quantized for _, other in tried], one(bench))
    fastest = min(times)
    best = max((place for place, seconds in enumerate(times) if seconds <= fastest * _SLOWER), key=lambda place: tried[place][1].score.sqnr_db)
    return tried[best][1], [(f"arrangement {name}", other.quantized, other.score.sqnr_db) for name, other in tried]


def tune(tuning: Tuning, names: Sequence[str]) -> Tuning:
    """Recipes, then precision where the budget still asks for it."""
    for name in names:
        if tuning.bench.late:
            break
        tuning.bench.tell(name)
        _try(tuning, name, recipes.load(name).apply)
    if not tuning.met():
        _widen(tuning)
    return tuning


def _try(tuning: Tuning, name: str, apply: Callable[[Bench], Applied | str]) -> None:
    before = tuning.bench.score.sqnr_db
    applied = apply(tuning.bench)
    if isinstance(applied, str):
        tuning.steps.append(Step(name=name, what=applied, before_db=before, after_db=before, kept=False))
        return
    other = tuning.bench.took(applied)
    kept = applied.required or other.score.better(tuning.bench.score)
    tuning.steps.append(Step(name=name, what=applied.what, before_db=before, after_db=other.score.sqnr_db, kept=kept))
    if kept:
        tuning.bench = other
        tuning.points.append((name, other.quantized, other.score.sqnr_db))


def _widen(tuning: Tuning) -> None:
    """Keep the values in float whose rounding costs the answers most, until the budget holds or the latency forbids it."""
    bench = tuning.bench
    kept: list[str] = []
    before = bench.score.sqnr_db
    for value in sensitive(bench):
        trial = without_rounding(bench.quantized, [value])
        score = bench.judged(trial)
        if bench.late or not score.better(bench.score, 0.1):
            continue
        if tuning.budget.max_latency is not None and latencies([trial], one(bench))[0] > tuning.budget.max_latency:
            continue
        bench.quantized, bench.score = trial, score
        kept.append(value)
        tuning.points.append((f"float: {', '.join(kept[-3:])}", trial, score.sqnr_db))
        if tuning.met():
            break
    tuning.kept_float = tuple(kept)
    what = f"{', '.join(kept)} stay float" if kept else "no single value's rounding costs the answers"
    tuning.steps.append(Step(name="keep-float", what=what, before_db=before, after_db=bench.score.sqnr_db, kept=bool(kept)))


def sensitive(bench: Bench) -> list[str]:
    """Values whose rounding costs most: the statistics choose whom to ask, and the answers decide the order."""
    found = [pair.value for pair in pairs(bench.quantized)]
    found.sort(key=lambda value: -_coarse(bench, value))
    gains = {}
    for value in found[:_SENSITIVE]:
        bench.tell(f"sensitivity of {value}")
        gains[value] = bench.judged(without_rounding(bench.quantized, [value])).sqnr_db
    return sorted(gains, key=lambda value: -gains[value])


def _coarse(bench: Bench, value: str) -> float:
    """The step of the rounding against the smallest channel's reach: what a channel can still tell apart."""
    stats = bench.stats.get(value)
    if stats is None or value not in bench.ranges:
        return 0.0
    low, high = bench.ranges[value]
    if stats.channel_low is None or stats.channel_high is None:
        return (high - low) / max(stats.rms, 1e-30)
    reach = stats.channel_high - stats.channel_low
    alive = reach[reach > 0]
    return float((high - low) / max(np.percentile(alive, 10), 1e-30)) if alive.size else 0.0


def front(points: Sequence[tuple[str, onnx.ModelProto, float]], batch: Mapping[str, Array], evaluator: Evaluator | None, plain: onnx.ModelProto) -> list[Point]:
    """Every graph on the way with its latency and size; those that nothing beats are marked."""
    unique: dict[bytes, tuple[str, onnx.ModelProto, float]] = {}
    for name, model, level in points:
        unique.setdefault(model.SerializeToString(deterministic=True), (name, model, level))
    chosen = list(unique.values())
    times = latencies([model for _, model, _ in chosen], batch)
    made = [Point(name=name, sqnr_db=level, latency_s=seconds, size=model.ByteSize(),
                  metric=evaluator.compare(plain, model).after if evaluator is not None and len(chosen) <= 12 else None)
            for (name, model, level), seconds in zip(chosen, times, strict=True)]
    return [replace(p, best=not any(_beats(other, p) for other in made)) for p in made]


def _beats(a: Point, b: Point) -> bool:
    return a is not b and a.sqnr_db >= b.sqnr_db and a.latency_s <= b.latency_s and a.size <= b.size and (a.sqnr_db, a.latency_s, a.size) != (b.sqnr_db, b.latency_s, b.size)


def one(bench: Bench) -> dict[str, Array]:
    """The first kept sample, alone where the graph's batch may vary."""
    batch = bench.samples[0][1]
    port = next(iter(bench.model.graph.input)).type.tensor_type.shape.dim
    varies = bool(port) and not port[0].HasField("dim_value")
    return {name: array[:1] if varies and array.ndim else array for name, array in batch.items()}


def deadline(seconds: float) -> float:
    """So many seconds from now, on the monotonic clock."""
    return time.monotonic() + seconds if math.isfinite(seconds) else math.inf
