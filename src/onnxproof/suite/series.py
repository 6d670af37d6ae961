"""The recorded runs of a suite as series: one for each model, backend and number, with what else was recorded beside each value."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnxproof.suite.records import Result, Run
from onnxproof.suite.store import Store

LARGEST = 1e9
"""A ratio beyond is taken for this: an infinity has no logarithm. Reports draw no more either."""
_SMALLEST = 1e-9
METRICS = ("noise_ratio", "quality", "latency_ms")
_LINEAR = frozenset({"quality"})
"""Decibels are a logarithm already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of one run."""

    run: int
    value: float
    scaled: float
    """The value on the scale on which jitter is alike at any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One number of one model on one backend, over the runs that have it."""

    model: str
    backend: str
    metric: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All runs of a suite, the oldest first, with the results of each by model."""

    suite: str
    runs: tuple[Run, ...]
    results: Mapping[int, Mapping[str, Result]]

    @property
    def models(self) -> list[str]:
        """Every model that has a result, in order."""
        return sorted({name for results in self.results.values() for name in results})

    def of_model(self, name: str) -> list[tuple[Run, Result]]:
        """The runs that have this model, with its result."""
        return [
            (run, self.results[run.id][name]) for run in self.runs if name in self.results[run.id]
        ]


def read(store: Store, suite: str | None = None) -> Recorded:
    """The history of one suite; of the one that ran last where none is named."""
    runs = store.runs(suite)
    if suite is None and runs:
        suite = runs[-1].suite
        runs = [run for run in runs if run.suite == suite]
    results = {run.id: {each.name: each for each in store.results(run.id)} for run in runs}
    filled = [run for run in runs if results[run.id]]
    return Recorded(
        suite=suite or "",
        runs=tuple(filled),
        results={run.id: results[run.id] for run in filled},
    )


def series(recorded: Recorded) -> list[Series]:
    """Every series; what was taken over from an earlier run is no new value."""
    points: dict[tuple[str, str, str], list[Point]] = defaultdict(list)
    for run in recorded.runs:
        for name, result in recorded.results[run.id].items():
            if result.reused_from is not None:
                continue
            for backend, metric, value in _values(result):
                scaled = _scale(metric, value)
                points[name, backend, metric].append(Point(run=run.id, value=value, scaled=scaled))
    return [
        Series(model=model, backend=backend, metric=metric, points=tuple(found))
        for (model, backend, metric), found in sorted(points.items())
    ]


def _values(result: Result) -> Iterator[tuple[str, str, float]]:
    """Backend, metric and value; of the model as a whole where no backend was measured."""
    sources: Sequence[tuple[str, object]] = [(each.backend, each) for each in result.measures]
    if not sources:
        sources = [("", result)]
    for backend, source in sources:
        for metric in METRICS:
            value = getattr(source, metric, None)
            if value is not None and not math.isnan(value):
                yield backend, metric, float(value)


def _scale(metric: str, value: float) -> float:
    if metric in _LINEAR:
        return max(-LARGEST, min(value, LARGEST))
    return math.log10(max(_SMALLEST, min(value, LARGEST)))
