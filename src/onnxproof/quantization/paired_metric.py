"""A drop of the metric, distinguished from noise: both models answer the same samples, and what counts is how their scores differ.

Scores of 0 and 1 (right or wrong) get the interval of Tango (1998): McNemar's test, asked for every drop instead of none. It stays
honest where no answer changed at all, which says "at most 0.4 % of 1,000", not "nothing". Other scores are resampled, with one
unseen change each way added, for the same reason.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
CONFIDENCE = 0.95
_RESAMPLES = 2000
"""Of the bootstrap (not measured)."""
_HALVINGS = 60
"""Of an interval of at most 2: float64 has no more than 53 bits."""
_TOLERANCE = 1e-12
"""For a drop that equals the budget but for rounding."""


class Outcome(StrEnum):
    """What the samples say about a budget."""

    SHOWN = "shown"
    """The whole interval lies within the budget."""
    NOT_SHOWN = "not shown"
    """The interval reaches beyond the budget, and does not lie beyond it: too few samples to tell."""
    BEYOND = "beyond"
    """The whole interval lies beyond the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The float model's and the quantized model's value, and the drop between them with its interval."""

    before: float
    after: float
    drop: float
    low: float
    high: float
    """The interval of the drop; infinite where the evaluator gives one number only."""
    samples: int
    changed: int = 0
    """Samples whose score is another one."""
    confidence: float = CONFIDENCE

    def outcome(self, most: float) -> Outcome:
        """Whether a drop of at most this much is shown."""
        if self.high <= most + _TOLERANCE:
            return Outcome.SHOWN
        if self.low > most + _TOLERANCE:
            return Outcome.BEYOND
        return Outcome.NOT_SHOWN

    def samples_needed(self, most: float) -> int | None:
        """About how many samples would show it, if the drop stays as it is; None where no number would."""
        if self.drop >= most or not math.isfinite(self.high):
            return None
        ratio = (self.high - self.drop) / (most - self.drop)
        # a width falls with the root of the samples, and faster where nothing changed
        growth = ratio**2 if self.changed else ratio
        return math.ceil(1.02 * self.samples * growth)

    @property
    def certain(self) -> bool:
        """True when the samples tell the drop from nothing."""
        return self.low > 0 or self.high < 0


def compare_paired(before: Array, after: Array, confidence: float = CONFIDENCE) -> Metric:
    """Both models' scores of the same samples, as one comparison."""
    low, high = interval(before, after, confidence)
    return Metric(
        before=float(before.mean()),
        after=float(after.mean()),
        drop=float((before - after).mean()),
        low=low,
        high=high,
        samples=before.size,
        changed=int((before != after).sum()),
        confidence=confidence,
    )


def interval(before: Array, after: Array, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The interval of the mean drop; the same scores give the same interval, and no confidence gives the estimate alone."""
    drop = float((before - after).mean())
    if not confidence:
        return drop, drop
    if before.size < 2:
        return -math.inf, math.inf
    if np.isin(before, (0, 1)).all() and np.isin(after, (0, 1)).all():
        lost, won = int((before > after).sum()), int((after > before).sum())
        high = _highest(lost, won, before.size, confidence)
        return -_highest(won, lost, before.size, confidence), high
    spread = max(before.max(), after.max()) - min(before.min(), after.min())
    return _bootstrap(np.append(before - after, (spread, -spread)), confidence)


def _highest(lost: int, won: int, count: int, confidence: float) -> float:
    """The largest drop that the counts of changed answers do not refute."""
    limit = NormalDist().inv_cdf(0.5 + confidence / 2)
    low, high = (lost - won) / count, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _score(lost, won, count, middle) < limit:
            low = middle
        else:
            high = middle
    return low


def _score(lost: int, won: int, count: int, drop: float) -> float:
    """How many standard deviations a supposed drop lies above the one seen; McNemar's statistic at a drop of 0."""
    linear = (2 * count - lost + won) * drop - lost - won
    root = math.sqrt(max(linear**2 + 8 * count * won * drop * (1 - drop), 0.0))
    # with the share of answers won that is likeliest under the supposed drop
    variance = (root - linear) / 2 + count * drop * (1 - drop)
    gap = count * drop - (lost - won)
    if variance > 0:
        return gap / math.sqrt(variance)
    if gap:
        return math.copysign(math.inf, gap)
    return 0.0


def _bootstrap(differences: Array, confidence: float) -> tuple[float, float]:
    rng = np.random.default_rng(0)
    means = [float(rng.choice(differences, differences.size).mean()) for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(low), float(high)
