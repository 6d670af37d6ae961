"""What one pass over the data leaves of a tensor: mergeable, and of one size however long the pass was.

Extremes are exact, over all and for each channel. The distribution is kept twice. One histogram has bins of equal width, aligned to multiples
of a power of two: when a value lies outside, neighbouring bins are joined, so that two histograms of one tensor can always be merged. The
other has 32 bins an octave, so that one outlier of 1e4 does not hide what lies around 1. Large tensors enter them by every n-th element,
each counted n times; the first element moves from batch to batch.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
BINS = 2048
SAMPLED = 4096
"""Elements of one batch that enter the histogram: with thousands of them in every batch, more change no range (and cost time)."""


@dataclass(slots=True, kw_only=True)
class Histogram:
    """Counts on a grid of `width`; `first` is the place of the first bin, in widths from zero."""

    width: float = 0.0
    first: int = 0
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, values: Array, weight: int, low: float, high: float) -> None:
        """Count values between `low` and `high`, each `weight` times."""
        self._extend_grid(low, high)
        places = np.floor(values * (1.0 / self.width)).astype(np.int64) - self.first
        np.clip(places, 0, BINS - 1, out=places)
        self.counts += np.bincount(places, minlength=BINS) * weight

    def merge(self, other: "Histogram") -> None:
        """Take the counts of another histogram of the same tensor."""
        if not other.counts.size:
            return
        used = np.flatnonzero(other.counts)
        edges = (other.first + used) * other.width
        self._extend_grid(float(edges[0]), float(edges[-1]), least=other.width)
        places = np.floor((edges + other.width / 2) / self.width).astype(np.int64) - self.first
        np.add.at(self.counts, np.clip(places, 0, BINS - 1), other.counts[used])

    @property
    def centres(self) -> Array:
        """The middle of each bin."""
        return (self.first + np.arange(self.counts.size) + 0.5) * self.width

    def _extend_grid(self, low: float, high: float, least: float = 0.0) -> None:
        """Let the grid reach from `low` to `high`: wider bins where they must be, a shifted window where that is enough."""
        if not self.counts.size:
            self._start_grid(low, high, least)
        used = np.flatnonzero(self.counts)
        if used.size:
            low = min(low, (self.first + int(used[0])) * self.width)
            high = max(high, (self.first + int(used[-1]) + 0.5) * self.width)
        while (
            math.floor(high / self.width) - math.floor(low / self.width) >= BINS
            or self.width < least
        ):
            self._regrid(self.width * 2, math.floor(self.first / 2))
        lowest = math.floor(low / self.width)
        highest = math.floor(high / self.width)
        if not self.first <= lowest <= highest < self.first + BINS:
            self._regrid(self.width, (lowest + highest) // 2 - BINS // 2)

    def _start_grid(self, low: float, high: float, least: float) -> None:
        """Bins around the first values, twice as many as these need."""
        width = max(high - low, abs(high) * 1e-6, 1e-30)
        self.width = max(2.0 ** math.ceil(math.log2(width / (BINS // 2))), least)
        self.counts = np.zeros(BINS, np.int64)
        self.first = math.floor((low + high) / 2 / self.width) - BINS // 2

    def _regrid(self, width: float, first: int) -> None:
        used = np.flatnonzero(self.counts)
        ratio = round(width / self.width)
        places = (self.first + used) // ratio - first
        counts = np.zeros(BINS, np.int64)
        np.add.at(counts, np.clip(places, 0, BINS - 1), self.counts[used])
        self.width, self.first, self.counts = width, first, counts


_SHIFT = 18
_OCTAVES = 1 << (32 - _SHIFT)
_BIN_STARTS = np.ascontiguousarray(np.arange(_OCTAVES, dtype=np.uint32) << _SHIFT)
_BIN_MIDDLES = np.ascontiguousarray(_BIN_STARTS + (1 << (_SHIFT - 1)))
with np.errstate(invalid="ignore", over="ignore"):
    _EDGES = _BIN_STARTS.view(np.float32).astype(np.float64)
    _CENTRES = _BIN_MIDDLES.view(np.float32).astype(np.float64)
"""A float32's sign, exponent and first five bits of mantissa are the place of its bin: nothing has to be computed."""


_BIN_WIDTH = 1.04
"""A bin of 32 an octave is at most this much wide, so a value within it may lie on either side of a range's end."""


def _count_by_octave(values: Array) -> Array:
    bins = np.ascontiguousarray(values, np.float32).view(np.uint32) >> _SHIFT
    return np.bincount(bins, minlength=_OCTAVES)


@dataclass(slots=True, kw_only=True)
class Statistics:
    """One tensor over all batches so far."""

    axis: int | None = None
    """The channels' axis, where the tensor has channels that matter."""
    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    total: float = 0.0
    squares: float = 0.0
    sampled: int = 0
    channel_low: Array | None = None
    channel_high: Array | None = None
    histogram: Histogram = field(default_factory=Histogram)
    octaves: Array = field(default_factory=lambda: np.zeros(_OCTAVES, np.int64))
    broken: str = ""
    """The first sample in which the tensor was not finite."""

    def update(self, array: Array, sample: str, turn: int = 0) -> None:
        """Take one batch of values; one that is not finite is remembered by its name and left out."""
        if array.size:
            flat = array.reshape(-1)
            stride = max(1, flat.size // SAMPLED)
            self.take(*self._extremes(array), flat[turn % stride :: stride], stride, sample)

    def take(self, lows: Array, highs: Array, picked: Array, stride: int, sample: str) -> None:
        """Take one batch by its extremes (of each channel, or one each) and every n-th of its values."""
        low, high = float(lows.min()), float(highs.max())
        if not (math.isfinite(low) and math.isfinite(high) and np.isfinite(picked).all()):
            self.broken = self.broken or sample
            return
        if self.axis is not None and lows.size > 1:
            self._extend_channels(lows.astype(np.float64), highs.astype(np.float64))
        picked = picked.astype(np.float64)
        self.low = min(self.low, low)
        self.high = max(self.high, high)
        self.count += picked.size * stride
        self.total += float(picked.sum())
        self.squares += float((picked * picked).sum())
        self.sampled += picked.size
        self.histogram.add(picked, stride, low, high)
        self.octaves += _count_by_octave(picked) * stride

    def merge(self, other: "Statistics") -> None:
        """Take the statistics of other batches of the same tensor."""
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.sampled += other.sampled
        self._extend_channels(other.channel_low, other.channel_high)
        self.histogram.merge(other.histogram)
        self.octaves = self.octaves + other.octaves
        self.broken = self.broken or other.broken

    @property
    def mean(self) -> float:
        """The mean, from the elements that entered the histogram."""
        if not self.sampled:
            return 0.0
        return self.total / self.sampled

    @property
    def rms(self) -> float:
        """The root of the mean square, from the same."""
        if not self.sampled:
            return 0.0
        return math.sqrt(self.squares / self.sampled)

    def distribution(self) -> tuple[Array, Array]:
        """Values in rising order and how often each (or its like, within three parts in a hundred) was seen; zero is exactly zero."""
        used = np.flatnonzero(self.octaves)
        values = np.where(_EDGES[used] == 0, 0.0, _CENTRES[used])
        order = np.argsort(values)
        return values[order], self.octaves[used][order]

    def beyond(self, low: float, high: float) -> float:
        """The share of values outside a range."""
        values, counts = self.distribution()
        if not counts.size:
            return 0.0
        outside = (values < low * _BIN_WIDTH) | (values > high * _BIN_WIDTH)
        return float(counts[outside].sum() / counts.sum())

    def _extremes(self, array: Array) -> tuple[Array, Array]:
        if self.axis is None or array.ndim < 2:
            return np.asarray(array.min()), np.asarray(array.max())
        axes = tuple(axis for axis in range(array.ndim) if axis != self.axis % array.ndim)
        return array.min(axes), array.max(axes)

    def _extend_channels(self, lows: Array | None, highs: Array | None) -> None:
        if lows is None or highs is None:
            return
        if self.channel_low is None or self.channel_high is None:
            self.channel_low, self.channel_high = lows.copy(), highs.copy()
        elif self.channel_low.shape == lows.shape:
            self.channel_low = np.minimum(self.channel_low, lows)
            self.channel_high = np.maximum(self.channel_high, highs)
        else:  # a dim that varies is no channel
            self.axis = self.channel_low = self.channel_high = None
