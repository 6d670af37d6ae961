"""Ranges judged on the outputs: each value's range is tried a little narrower and wider, and what the answers gain from is kept.

A range that costs a tensor the least need not cost the answers the least: rare large values may carry the decision. Values are taken
in the order of what their rounding costs by the statistics; the search ends when time is over or nothing moves.
"""

from onnxproof.quantization.calibration.ranges import CALIBRATORS, Range
from onnxproof.quantization.qdq import pairs
from onnxproof.quantization.workbench import Applied, Bench, Score

ABOUT = "ranges judged on the outputs"
_SHARES = (0.7, 0.8, 0.9, 1.1)
_GAIN_DB = 0.02


def apply(bench: Bench) -> Applied | str:
    """Choose the best calibrator for all, then one range after the other."""
    best, score, name = _calibrator(bench)
    values = [pair.value for pair in pairs(bench.quantized) if pair.value in bench.stats]
    values.sort(key=lambda value: -_cost(bench, value))
    moved = 0
    for _round in range(2):
        before = score
        for value in values:
            if bench.late:
                break
            bench.tell(f"range of {value}")
            low, high = best[value]
            seen = bench.stats[value]
            for share in _SHARES:
                trial = {
                    **best,
                    value: (
                        max(low * share, min(seen.low, 0.0)),
                        min(high * share, max(seen.high, 0.0)),
                    ),
                }
                if trial[value] == best[value]:
                    continue
                found = bench.judged(bench.insert(ranges=trial))
                if found.better(score, _GAIN_DB):
                    best, score, moved = trial, found, moved + 1
        if not score.better(before, 0.1):
            break
    if not score.better(bench.score, _GAIN_DB):
        return "no calibrator and no single range gives better answers"
    return Applied(ranges=best, what=f"{name}, then {moved} ranges moved")


def _calibrator(bench: Bench) -> tuple[dict[str, Range], Score, str]:
    best, score, name = dict(bench.ranges), bench.score, bench.plan.calibrator
    for other in CALIBRATORS:
        if other != bench.plan.calibrator and not bench.late:
            ranges = bench.ranged(bench.plan.with_(calibrator=other))
            found = bench.judged(bench.insert(ranges=ranges))
            if found.better(score):
                best, score, name = ranges, found, other
    return best, score, name


def _cost(bench: Bench, value: str) -> float:
    """The rounding error of the value against its own size."""
    low, high = bench.ranges[value]
    return (high - low) / max(bench.stats[value].rms, 1e-30)
