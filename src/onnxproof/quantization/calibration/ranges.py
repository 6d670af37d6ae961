"""From statistics to a range: every calibrator works on what one pass left, so trying another one costs no data.

A calibrator is a function from statistics, the number of levels and symmetry to (low, high); `CALIBRATORS` names them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from onnxproof.errors import UsageError
from onnxproof.quantization.calibration.statistics import Statistics

Array = np.ndarray[Any, Any]
Range = tuple[float, float]
Calibrator = Callable[[Statistics, int, bool], Range]
_SHARES = np.concatenate([np.geomspace(1e-4, 0.3, 40), np.linspace(0.32, 1.0, 35)])
"""Candidates for a clipped range, as shares of the whole one: dense at both ends, since outliers are far out (not measured)."""


def min_max(stats: Statistics, levels: int, symmetric: bool) -> Range:
    """Everything that was seen."""
    return _include_zero(stats.low, stats.high, symmetric)


def percentile(stats: Statistics, levels: int, symmetric: bool, share: float = 0.9999) -> Range:
    """All but the outermost values, at each end by itself."""
    values, counts = stats.distribution()
    if not counts.size:
        return min_max(stats, levels, symmetric)
    reached = np.cumsum(counts) / counts.sum()
    tail = (1 - share) / 2
    low = values[int(np.searchsorted(reached, tail))]
    high = values[min(int(np.searchsorted(reached, 1 - tail)), counts.size - 1)]
    return _include_zero(max(float(low), stats.low), min(float(high), stats.high), symmetric)


def squared_error(stats: Statistics, levels: int, symmetric: bool) -> Range:
    """The range whose rounding and clipping together cost the least, searched over both ends."""
    distribution = stats.distribution()
    return _search(stats, symmetric, lambda low, high: _distortion(distribution, low, high, levels))


def entropy(stats: Statistics, levels: int, symmetric: bool) -> Range:
    """The range whose quantized distribution tells the least apart from the true one (Kullback-Leibler), really searched."""
    return _search(stats, symmetric, lambda low, high: _divergence(stats, low, high, levels))


CALIBRATORS: Mapping[str, Calibrator] = {
    "min-max": min_max,
    "mse": squared_error,
    "percentile": percentile,
    "entropy": entropy,
}


def calibrator(name: str) -> Calibrator:
    """The calibrator of that name; `percentile:99.9` says which."""
    key, _, detail = name.partition(":")
    if key not in CALIBRATORS:
        raise UsageError(
            "unknown-calibrator",
            f"there is no calibrator `{name}`",
            notes=[f"known are {', '.join(CALIBRATORS)} and auto"],
        )
    if key != "percentile" or not detail:
        return CALIBRATORS[key]
    try:
        share = float(detail) / 100
    except ValueError:
        share = -1.0
    if not 0.5 < share <= 1.0:
        raise UsageError(
            "bad-percentile", f"`{name}` is no percentile", help="say for example percentile:99.99"
        )
    return lambda stats, levels, symmetric: percentile(stats, levels, symmetric, share)


def _include_zero(low: float, high: float, symmetric: bool) -> Range:
    """Zero must be representable: padding and ReLU rest on it."""
    low = min(low, 0.0)
    high = max(high, 0.0)
    if symmetric:
        high = max(-low, high)
        low = -high
    if high > low:
        return low, high
    return 0.0, 1.0


def _search(stats: Statistics, symmetric: bool, cost: Callable[[float, float], float]) -> Range:
    low, high = min_max(stats, 0, symmetric)
    if not stats.histogram.counts.size:
        return low, high
    if symmetric or low == 0.0 or high == 0.0:
        best = min(_SHARES, key=lambda share: cost(low * share, high * share))
        return float(low * best), float(high * best)
    lower = upper = 1.0
    for _round in range(2):  # one end after the other: both together cost the square
        upper = min(_SHARES, key=lambda share: cost(low * lower, high * share))
        lower = min(_SHARES, key=lambda share: cost(low * share, high * upper))
    return float(low * lower), float(high * upper)


def _is_zero_bin(stats: Statistics) -> Array:
    """The bin that zero falls into."""
    h = stats.histogram
    return np.asarray(h.first + np.arange(h.counts.size) == 0)


def _distortion(distribution: tuple[Array, Array], low: float, high: float, levels: int) -> float:
    """Expected squared error: within the range that of rounding, beyond it the distance to the nearer end."""
    values, counts = distribution
    step = (high - low) / (levels - 1)
    outside = values - np.clip(values, low, high)
    inside = (outside == 0) & (values != 0)  # what is exactly zero, as ReLU makes it, costs nothing
    return float((counts * (outside * outside + inside * step * step / 12)).sum())


def _divergence(stats: Statistics, low: float, high: float, levels: int) -> float:
    """KL of the clipped distribution against its quantized form; empty bins stay empty."""
    h = stats.histogram
    inside = (h.centres >= low) & (h.centres <= high)
    # the spike that ReLU makes at zero would decide alone
    counts = np.where(_is_zero_bin(stats), 0, h.counts)
    p = counts[inside].astype(np.float64)
    if p.size < 2 or not p.sum():
        return float("inf")
    kept = p.copy()
    p[0] += counts[h.centres < low].sum()
    p[-1] += counts[h.centres > high].sum()
    groups = np.arange(p.size)
    if p.size > levels:
        groups = np.minimum((groups * levels) // p.size, levels - 1)
    sums = np.bincount(groups, kept)
    filled = np.bincount(groups, (kept > 0).astype(np.float64))
    q = np.where(kept > 0, (sums / np.maximum(filled, 1))[groups], 0.0)
    p = p / p.sum()
    q = q / max(q.sum(), 1e-300)
    used = p > 0
    return float((p[used] * np.log(p[used] / np.maximum(q[used], 1e-12))).sum())
