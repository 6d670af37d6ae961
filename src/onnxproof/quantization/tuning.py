"""Tuning to a budget: recipes that cost no speed first, precision last; accepted by measurement, never on noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import UsageError
from onnxproof.quantization import recipes
from onnxproof.quantization.evaluation import Evaluator
from onnxproof.quantization.kernel_report import latencies
from onnxproof.quantization.paired_metric import Outcome
from onnxproof.quantization.placement import arrangements
from onnxproof.quantization.tuning_state import Point, Step, Tuning, one
from onnxproof.quantization.widen import widen
from onnxproof.quantization.workbench import Applied, Bench

Array = np.ndarray[Any, Any]
RECIPES = ("equalize", "smooth", "fit-ranges", "correct-bias", "learn-rounding", "reduce-range")
"""In the order in which they are tried: what changes the float graph comes before what fits it."""
_SLOWER = 1.03
"""An arrangement that is slower than the fastest by more than this is not taken for its decibels."""


def arrange(
    bench: Bench, exclude: frozenset[str]
) -> tuple[Bench, list[tuple[str, onnx.ModelProto, float]]]:
    """The arrangement with the most decibels among the fastest."""
    tried: list[tuple[str, Bench]] = []
    for name, plan in arrangements(bench.model, bench.plan, exclude):
        bench.tell(f"arrangement {name}")
        other = replace(bench, plan=plan, ranges={})
        tried.append((name, other.settle()))
    if not tried:
        raise UsageError(
            "nothing-to-quantize",
            "no node of this model can be quantized",
            notes=[f"it has {', '.join(sorted({n.op_type for n in bench.model.graph.node}))}"],
            help="int8 serves Conv, MatMul and Gemm; try `--scheme dynamic` or `--scheme fp16`",
        )
    made = [other.quantized for _, other in tried]
    times = (
        bench.journal.timed(made, lambda: latencies(made, one(bench)))
        if bench.journal is not None
        else latencies(made, one(bench))
    )
    fastest = min(times)
    best = max(
        (place for place, seconds in enumerate(times) if seconds <= fastest * _SLOWER),
        key=lambda place: tried[place][1].score.sqnr_db,
    )
    return tried[best][1], [
        (f"arrangement {name}", other.quantized, other.score.sqnr_db) for name, other in tried
    ]


def tune(tuning: Tuning, names: Sequence[str]) -> Tuning:
    """Recipes, then precision where the budget still asks for it."""
    for name in names:
        if tuning.bench.late:
            break
        tuning.bench.tell(name)
        _try(tuning, name, recipes.load(name).apply)
    if tuning.outcome() is not Outcome.SHOWN:
        widen(tuning)
    return tuning


def _try(tuning: Tuning, name: str, apply: Callable[[Bench], Applied | str]) -> None:
    before = tuning.bench.score.sqnr_db
    applied = apply(tuning.bench)
    if isinstance(applied, str):
        tuning.steps.append(
            Step(name=name, what=applied, before_db=before, after_db=before, kept=False)
        )
        return
    other = tuning.bench.took(applied)
    kept = applied.required or other.score.better(tuning.bench.score)
    tuning.steps.append(
        Step(
            name=name, what=applied.what, before_db=before, after_db=other.score.sqnr_db, kept=kept
        )
    )
    if kept:
        tuning.bench = other
        tuning.points.append((name, other.quantized, other.score.sqnr_db))


def front(
    points: Sequence[tuple[str, onnx.ModelProto, float]],
    batch: Mapping[str, Array],
    evaluator: Evaluator | None,
    plain: onnx.ModelProto,
) -> list[Point]:
    """Every graph on the way with its latency and size; those that nothing beats are marked."""
    unique: dict[bytes, tuple[str, onnx.ModelProto, float]] = {}
    for name, model, level in points:
        unique.setdefault(model.SerializeToString(deterministic=True), (name, model, level))
    chosen = list(unique.values())
    times = latencies([model for _, model, _ in chosen], batch)
    made = [
        Point(
            name=name,
            sqnr_db=level,
            latency_s=seconds,
            size=model.ByteSize(),
            metric=evaluator.compare(plain, model).after
            if evaluator is not None and len(chosen) <= 12
            else None,
        )
        for (name, model, level), seconds in zip(chosen, times, strict=True)
    ]
    return [replace(p, best=not any(_beats(other, p) for other in made)) for p in made]


def _beats(a: Point, b: Point) -> bool:
    return (
        a is not b
        and a.sqnr_db >= b.sqnr_db
        and a.latency_s <= b.latency_s
        and a.size <= b.size
        and (a.sqnr_db, a.latency_s, a.size) != (b.sqnr_db, b.latency_s, b.size)
    )
