"""Steps in a series, told from jitter by the noise of its other runs.

1. `ruptures` (PELT, squares, penalty by the Bayesian information criterion) proposes where a series may have changed.
2. Each proposal is a two-sample t-test (scipy) of what lies before and behind it. The variance is that within the segments, and at
   least the median of all series of the same kind: a model whose few runs were equal by luck is not taken for exact. Jitter with heavy
   tails, as all series together show it, lowers the degrees of freedom: there a lone value far off is nothing special.
3. All proposals of a history are tested together (Bonferroni), half of `SIGNIFICANCE` for places at which something else is known to have
   changed, which are few, and half for every segment that could have been proposed anywhere.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import util
from itertools import pairwise
from typing import Any

import numpy as np

from onnxproof.errors import UsageError

Values = np.ndarray[Any, np.dtype[np.float64]]
SIGNIFICANCE = 0.01
"""The chance of a false alarm in a whole history that is aimed at; `make bench-history` measures it."""
_FEWEST = 4
"""Runs before which a series is not tested: a variance of two values says nothing. Not measured."""
_WINDOW = 9
"""Runs whose median is the level from which a value's jitter is counted. Not measured."""
_POOLED = 100
"""Values from which on the tails of the jitter can be fitted; below, they are taken for normal. Not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change between two segments of a series, by places."""

    start: int
    """The first place behind it."""
    end: int
    """The end of the segment behind it."""
    before: float
    after: float
    p_value: float
    returns: bool
    """The series comes back afterwards: no step that stays."""


def check() -> None:
    """Say what is missing before the work begins."""
    missing = [name for name in ("ruptures", "scipy") if util.find_spec(name) is None]
    if missing:
        raise UsageError(
            "history-missing",
            f"a history needs packages that are not installed: {', '.join(missing)}",
            help="pip install 'onnxproof[history]'",
        )


def find_steps(
    values: Sequence[Sequence[float]], known: Callable[[int, int], bool]
) -> list[list[Step]]:
    """The steps of each series; `known(series, place)` says whether something else changed there."""
    check()
    proposals = [_propose(np.asarray(each, dtype=float)) for each in values]
    spreads = [
        _spread(np.asarray(each, dtype=float), places)
        for each, places in zip(values, proposals, strict=True)
    ]
    floor = _median([spread for spread, freedom in spreads if freedom > 0])
    tail = _tail_freedom(values)
    everything, reasoned = _count_tests(values, known)
    found = []
    for number, each in enumerate(values):
        steps = []
        for step in _test(each, proposals[number], spreads[number], floor, tail):
            family = everything
            if known(number, step.start):
                family = reasoned
            if step.p_value * family <= SIGNIFICANCE / 2:
                steps.append(step)
        found.append(steps)
    return found


def _count_tests(
    values: Sequence[Sequence[float]], known: Callable[[int, int], bool]
) -> tuple[int, int]:
    """How many segments could have been proposed (one that begins anywhere, of any length), and how many places have a reason."""
    everything = reasoned = 0
    for number, each in enumerate(values):
        if len(each) >= _FEWEST:
            places = range(1, len(each))
            everything += len(each) * len(places)
            reasoned += sum(known(number, place) for place in places)
    return everything, reasoned


def _propose(series: Values) -> list[int]:
    """Step 1: the places at which a new segment begins."""
    import ruptures

    count = len(series)
    if count < _FEWEST:
        return []
    sigma = _robust_sigma(series)
    if sigma == 0.0:
        return [place for place in range(1, count) if series[place] != series[place - 1]]
    search = ruptures.Pelt(model="l2", min_size=1, jump=1).fit(series.reshape(-1, 1))
    places: list[int] = search.predict(pen=2 * sigma**2 * math.log(count))
    return places[:-1]


def _robust_sigma(series: Values) -> float:
    """The noise from differences of neighbours, which a step hardly touches: their median absolute deviation."""
    from scipy import stats

    differences = np.diff(series)
    return float(stats.median_abs_deviation(differences, scale="normal")) / math.sqrt(2)


def _tail_freedom(values: Sequence[Sequence[float]]) -> float:
    """The degrees of freedom of Student's t that fits the jitter of all series: about 3 for heavy tails, infinite for a normal one.

    Each series is scaled by an estimate of its own, which makes the tails of normal jitter heavier, too. By how much is seen in normal
    series of the same lengths, and taken off.
    """
    series = [np.asarray(each, dtype=float) for each in values if len(each) >= _FEWEST]
    steady = [each for each in series if _robust_sigma(each)]
    if sum(map(len, steady)) < _POOLED:
        return math.inf
    rng = np.random.default_rng(0)
    normal = [rng.standard_normal(len(each)) for each in steady]
    excess = 1 / _fitted_freedom(steady) - 1 / _fitted_freedom(normal)
    return 1 / excess if excess > 0 else math.inf


def _fitted_freedom(series: Sequence[Values]) -> float:
    """Of the distances from a running median, in units of each series' noise."""
    from scipy import ndimage, stats

    residuals = [
        (each - ndimage.median_filter(each, size=_WINDOW, mode="nearest")) / _robust_sigma(each)
        for each in series
    ]
    freedom, _, _ = stats.t.fit(np.concatenate(residuals), floc=0.0)
    return float(freedom)


def _segments(count: int, places: Sequence[int]) -> list[tuple[int, int]]:
    edges = [0, *places, count]
    return list(pairwise(edges))


def _spread(series: Values, places: Sequence[int]) -> tuple[float, int]:
    """The variance within the segments, and its degrees of freedom; that of neighbours' differences where many segments leave less."""
    if len(series) < _FEWEST:
        return 0.0, 0
    segments = _segments(len(series), places)
    squares = sum(float(np.var(series[a:b]) * (b - a)) for a, b in segments)
    freedom = len(series) - len(segments)
    within = squares / max(freedom, 1)
    return max(within, _robust_sigma(series) ** 2), freedom


def _median(variances: Sequence[float]) -> float:
    return float(np.median(variances)) if variances else 0.0


def _test(
    values: Sequence[float],
    places: Sequence[int],
    spread: tuple[float, int],
    floor: float,
    tail: float,
) -> Iterator[Step]:
    """Step 2, for each proposal: the segment behind it against the one before."""
    from scipy import stats

    variance, freedom = max(spread[0], floor), max(spread[1], 1)
    segments = _segments(len(values), places)
    means = [float(np.mean(values[a:b])) for a, b in segments]
    for number in range(1, len(segments)):
        (a, b), (c, d) = segments[number - 1], segments[number]
        apart = means[number] - means[number - 1]
        error = math.sqrt(variance * (1 / (b - a) + 1 / (d - c)))
        p_value = float(apart == 0.0)
        if error:
            # the mean of several values has lighter tails than one of them
            heavy = tail * min(b - a, d - c)
            p_value = float(2 * stats.t.sf(abs(apart) / error, min(freedom, heavy)))
        yield Step(
            start=c,
            end=d,
            before=means[number - 1],
            after=means[number],
            p_value=p_value,
            returns=_returns(means, number),
        )


def _returns(means: Sequence[float], number: int) -> bool:
    """Whether the next segment lies nearer to the one before the step than to the one behind it."""
    if number + 1 >= len(means):
        return False
    before, after, later = means[number - 1 : number + 2]
    return abs(later - before) < abs(later - after)
