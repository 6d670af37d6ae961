"""Ranges judged on the outputs: each value's range is tried a little narrower and wider, and what the outputs gain from is kept.

A range that costs a tensor the least need not cost the outputs the least: rare large values may carry the decision. Values are taken
in the order of what their rounding costs by the statistics; the search ends when time is over or nothing moves.
"""

from onnxproof.quantization.calibration.ranges import CALIBRATORS, Range
from onnxproof.quantization.qdq import find_pairs
from onnxproof.quantization.trials import Applied, QuantizationTrials

ABOUT = "ranges judged on the outputs"
_SHARES = (0.7, 0.8, 0.9, 1.1)
_GAIN_DB = 0.02
"""A range that gains less stays as it is (not measured)."""
_ROUND_GAIN_DB = 0.1
"""A round over all values that gains less is the last one (not measured)."""


def apply(trials: QuantizationTrials) -> Applied | str:
    """Choose the best calibrator for all, then one range after the other."""
    search = _RangeSearch(trials)
    search.choose_calibrator()
    values = [pair.value for pair in find_pairs(trials.quantized) if pair.value in trials.stats]
    values.sort(key=lambda value: -_rounding_cost(trials, value))
    for _round in range(2):
        before = search.score
        for value in values:
            if trials.deadline_passed:
                break
            trials.report_progress(f"range of {value}")
            search.move_range(value)
        if not search.score.better(before, _ROUND_GAIN_DB):
            break
    if not search.score.better(trials.score, _GAIN_DB):
        return "no calibrator and no single range gives better answers"
    what = f"{search.calibrator}, then {search.moved} ranges moved"
    return Applied(ranges=search.ranges, what=what)


class _RangeSearch:
    """The best ranges so far, their score, and how they came about."""

    def __init__(self, trials: QuantizationTrials) -> None:
        self.trials = trials
        self.ranges = dict(trials.ranges)
        self.score = trials.score
        self.calibrator = trials.plan.calibrator
        self.moved = 0

    def choose_calibrator(self) -> None:
        """Take the ranges of the calibrator that serves the outputs best."""
        for name in CALIBRATORS:
            if name == self.trials.plan.calibrator or self.trials.deadline_passed:
                continue
            ranges = self.trials.choose_ranges(self.trials.plan.with_(calibrator=name))
            if self._take_if_better(ranges, 0.0):
                self.calibrator = name

    def move_range(self, value: str) -> None:
        """Try one value's range a little narrower and wider, within what was observed."""
        low, high = self.ranges[value]
        observed = self.trials.stats[value]
        for share in _SHARES:
            trial_low = max(low * share, min(observed.low, 0.0))
            trial_high = min(high * share, max(observed.high, 0.0))
            if (trial_low, trial_high) == self.ranges[value]:
                continue
            ranges = {**self.ranges, value: (trial_low, trial_high)}
            self.moved += self._take_if_better(ranges, _GAIN_DB)

    def _take_if_better(self, ranges: dict[str, Range], margin: float) -> bool:
        score = self.trials.score_model(self.trials.insert(ranges=ranges))
        if not score.better(self.score, margin):
            return False
        self.ranges = ranges
        self.score = score
        return True


def _rounding_cost(trials: QuantizationTrials, value: str) -> float:
    """The rounding error of the value against its own size."""
    low, high = trials.ranges[value]
    return (high - low) / max(trials.stats[value].rms, 1e-30)
