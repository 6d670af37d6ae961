"""Tuning to a budget: recipes that cost no speed first, precision last; accepted by measurement, never on noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import UsageError
from onnxproof.onnxmodel import large_models
from onnxproof.quantization import recipes
from onnxproof.quantization.evaluation import Evaluator
from onnxproof.quantization.keep_float import keep_values_float
from onnxproof.quantization.kernel_report import latencies
from onnxproof.quantization.paired_metric import Outcome
from onnxproof.quantization.placement import arrangements
from onnxproof.quantization.trials import Applied, QuantizationTrials
from onnxproof.quantization.tuning_state import Point, Step, Tuning, single_sample

Array = np.ndarray[Any, Any]
RECIPES = ("equalize", "smooth", "fit-ranges", "correct-bias", "learn-rounding", "reduce-range")
"""In the order in which they are tried: what changes the float graph comes before what fits it."""
_SLOWER = 1.03
"""An arrangement that is slower than the fastest by more than this is not taken for its decibels (not measured)."""
_MOST_EVALUATED = 12
"""With more points than this the task metric of each is not measured, since it takes as long as the tuning (not measured)."""


def arrange(
    trials: QuantizationTrials, exclude: frozenset[str]
) -> tuple[QuantizationTrials, list[tuple[str, onnx.ModelProto, float]]]:
    """The arrangement with the most decibels among the fastest."""
    tried: list[tuple[str, QuantizationTrials]] = []
    for name, plan in arrangements(trials.model, trials.plan, exclude):
        trials.report_progress(f"arrangement {name}")
        other = replace(trials, plan=plan, ranges={})
        tried.append((name, other.quantize_and_score()))
    if not tried:
        op_types = sorted({node.op_type for node in trials.model.graph.node})
        raise UsageError(
            "nothing-to-quantize",
            "no node of this model can be quantized",
            notes=[f"it has {', '.join(op_types)}"],
            help="int8 serves Conv, MatMul and Gemm; try `--scheme dynamic` or `--scheme fp16`",
        )
    times = _measure_latencies(trials, [other.quantized for _, other in tried])
    fastest = min(times)
    fast = [place for place, seconds in enumerate(times) if seconds <= fastest * _SLOWER]
    best = max(fast, key=lambda place: tried[place][1].score.sqnr_db)
    points = [
        (f"arrangement {name}", other.quantized, other.score.sqnr_db) for name, other in tried
    ]
    return tried[best][1], points


def _measure_latencies(trials: QuantizationTrials, models: list[onnx.ModelProto]) -> list[float]:
    sample = single_sample(trials)
    if trials.trial_cache is None:
        return latencies(models, sample)
    return trials.trial_cache.recall_latencies(models, lambda: latencies(models, sample))


def tune(tuning: Tuning, names: Sequence[str]) -> Tuning:
    """Recipes, then precision where the budget still asks for it."""
    for name in names:
        if tuning.trials.deadline_passed:
            break
        tuning.trials.report_progress(name)
        _try(tuning, name, recipes.load(name).apply)
    if tuning.outcome() is not Outcome.SHOWN:
        keep_values_float(tuning)
    return tuning


def _try(tuning: Tuning, name: str, apply: Callable[[QuantizationTrials], Applied | str]) -> None:
    before = tuning.trials.score.sqnr_db
    applied = apply(tuning.trials)
    if isinstance(applied, str):
        tuning.steps.append(
            Step(name=name, what=applied, before_db=before, after_db=before, kept=False)
        )
        return
    other = tuning.trials.with_applied(applied)
    after = other.score.sqnr_db
    kept = applied.required or other.score.better(tuning.trials.score)
    tuning.steps.append(
        Step(name=name, what=applied.what, before_db=before, after_db=after, kept=kept)
    )
    if kept:
        tuning.trials = other
        tuning.points.append((name, other.quantized, after))


def front(
    points: Sequence[tuple[str, onnx.ModelProto, float]],
    batch: Mapping[str, Array],
    evaluator: Evaluator | None,
    plain: onnx.ModelProto,
) -> list[Point]:
    """Every graph on the way with its latency and size; those that nothing beats are marked."""
    unique: dict[str, tuple[str, onnx.ModelProto, float]] = {}
    for name, model, level in points:
        unique.setdefault(large_models.digest(model), (name, model, level))
    chosen = list(unique.values())
    times = latencies([model for _, model, _ in chosen], batch)
    measured = []
    for (name, model, level), seconds in zip(chosen, times, strict=True):
        metric = None
        if evaluator is not None and len(chosen) <= _MOST_EVALUATED:
            metric = evaluator.compare(plain, model).after
        measured.append(
            Point(
                name=name,
                sqnr_db=level,
                latency_s=seconds,
                size=model.ByteSize(),
                metric=metric,
            )
        )
    return [
        replace(point, best=not any(_beats(other, point) for other in measured))
        for point in measured
    ]


def _beats(a: Point, b: Point) -> bool:
    return (
        a is not b
        and a.sqnr_db >= b.sqnr_db
        and a.latency_s <= b.latency_s
        and a.size <= b.size
        and (a.sqnr_db, a.latency_s, a.size) != (b.sqnr_db, b.latency_s, b.size)
    )
