"""Which scale, zero point or axis of a quantized graph is wrong: single parameters are put right until the answers are those of a healthy file.

1. Weights, against the float weights they were made from.
2. Pairs of QuantizeLinear and DequantizeLinear that disagree with each other.
3. Ranges of single activations, against what the float graph computes there. Where most ranges are off it is the calibration, and not a parameter.
4. Biases, against the product of scales that integer kernels take for granted; last, since the scales before them enter it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.attribution import Study, gain
from onnxproof.quantization.float_graph import Index
from onnxproof.quantization.qdq import INTEGER_LIMITS, Pair, constants, find_pairs
from onnxproof.quantization.qdq_edit import requantize_biases, scale_and_zero_point
from onnxproof.quantization.weight_parameters import (
    Parameter,
    Repair,
    apply_repairs,
    find_bias_repairs,
    find_weight_repairs,
)

Array = np.ndarray[Any, Any]
_MOST_RANGES = 2
"""Activations whose range is put right: two scales may be exchanged. More are a matter of calibration."""
_CLIPPED = 0.1
"""Of what a value reaches, the share beyond its range from which on the range is off. Min-max ranges of 128 digits leave at most 0.08 on other digits."""
_UNUSED = 4.0
"""A range so many times wider than what the value reaches is off. Not measured."""
_SAME_LEVEL_DB = 1.0
"""Of two changes whose answers are this near, the simpler one is taken. Not measured."""
_LEAST_GAIN_DB = 0.5
"""A repair that brings less is not made. Not measured."""
_TINY = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A graph with some parameters put right, and what that brought."""

    model: onnx.ModelProto
    repairs: tuple[Repair, ...]
    """The guilty nodes' first."""
    before_db: float
    after_db: float


@dataclass(eq=False)
class ParameterSearch:
    """The search on one quantized graph; `healthy_db` is the level from which on nothing more is looked for."""

    study: Study
    floats: Mapping[str, Array]
    healthy_db: float
    ranges: bool = True
    """Whether ranges are asked as well, which takes a run of the graph even where nothing is wrong."""

    def run(self) -> Mended | None:
        """The mended graph; None where no parameter is wrong, or where putting it right brings nothing."""
        model = self.study.model
        repairs: list[Repair] = []
        for step in (self._weights, self._disagreeing_pairs, self._ranges, self._biases):
            model, more = step(model)
            repairs += more
        if not repairs:
            return None
        before = self._level(self.study.model)
        after = self._level(model)
        if gain(before, after) < _LEAST_GAIN_DB:
            return None
        return Mended(model=model, repairs=tuple(repairs), before_db=before, after_db=after)

    def _level(self, model: onnx.ModelProto) -> float:
        """The lower one of what the graph says and what is served, in dB."""
        return min(self.study.sqnr_db(model), self.study.sqnr_db(model, ""))

    @cached_property
    def _arrays(self) -> list[Array]:
        return list(self.floats.values())

    def _weights(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Repair]]:
        """Step 1: independent of the answers, so all of them at once."""
        repairs = find_weight_repairs(model, self._arrays)
        return apply_repairs(model, repairs), repairs

    def _disagreeing_pairs(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Repair]]:
        """Step 2: the parameters of that node are taken whose answers are better."""
        made: list[Repair] = []
        for pair, other, results in _disagreements(model):
            sides = [[_repair(output, pair, _difference(other, pair)) for output in results]]
            if results == pair.results:
                sides.append([_repair(pair.quantize, other, _difference(pair, other))])
            trials = [(apply_repairs(model, side), side) for side in sides]
            model, repairs = max(trials, key=lambda trial: self._level(trial[0]))
            made += repairs
        return model, made

    def _ranges(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Repair]]:
        """Step 3: from the first activation on whose range is off, since later ones may be off for its sake."""
        if not self.ranges:
            return model, []
        made: list[Repair] = []
        changed, level = model, self._level(model)
        rounds = 0
        while level < self.healthy_db and rounds < _MOST_RANGES:
            trials = list(self._range_trials(self._study_of(changed)))
            if not trials:
                break
            changed, repairs, level = self._best(trials)
            made += repairs
            rounds += 1
        if not made or level < self.healthy_db:
            return model, []
        off = rounds + len(_ranges_off(self._study_of(changed)))
        if 2 * off > len(find_pairs(model)):
            return model, []
        return changed, made

    def _study_of(self, model: onnx.ModelProto) -> Study:
        return Study(model, self.study.samples, self.study.reference_outputs, self.floats)

    def _range_trials(self, study: Study) -> Iterator[tuple[onnx.ModelProto, list[Repair]]]:
        """What could be wrong with the first range that is off, the simplest change first: the zero point, scales exchanged, the range."""
        off = _ranges_off(study)
        for pair in off[:1]:
            low, high = study.needed_range(pair)
            for zero in _zero_points(pair, float(low)):
                what = f"its zero point is {_number(pair.zero)} and should be {_number(zero)}"
                yield _with_pairs(study.model, [(pair, replace(pair, zero=zero), what)])
            for other in off[1:]:
                yield _with_pairs(study.model, _exchange(pair, other))
            scale, zero = scale_and_zero_point(low, high, pair.dtype)
            ratio = float(pair.scale.reshape(-1)[0] / scale)
            what = f"its scale is {ratio:.3g} times what the values there ask for"
            changed = replace(pair, scale=scale.reshape(pair.scale.shape), zero=zero)
            yield _with_pairs(study.model, [(pair, changed, what)])

    def _best(
        self, trials: list[tuple[onnx.ModelProto, list[Repair]]]
    ) -> tuple[onnx.ModelProto, list[Repair], float]:
        """The first of those that come near to the best."""
        levels = [self._level(model) for model, _ in trials]
        best = max(levels)
        place = next(i for i, level in enumerate(levels) if gain(level, best) <= _SAME_LEVEL_DB)
        return *trials[place], levels[place]

    def _biases(self, model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[Repair]]:
        """Step 4."""
        repairs = find_bias_repairs(model, self._arrays)
        if not repairs:
            return model, []
        mended = apply_repairs(model, repairs)
        if gain(self._level(model), self._level(mended)) < _LEAST_GAIN_DB:
            return model, []
        return mended, repairs


def _with_pairs(
    model: onnx.ModelProto, changes: list[tuple[Pair, Pair, str]]
) -> tuple[onnx.ModelProto, list[Repair]]:
    """The graph with other parameters of some pairs; integer biases follow their scales."""
    repairs = [
        _repair(output, changed, what)
        for pair, changed, what in changes
        for output in (pair.quantize, *pair.results)
    ]
    mended = apply_repairs(model, repairs)
    requantize_biases(model, mended)
    return mended, repairs


def _disagreements(model: onnx.ModelProto) -> list[tuple[Pair, Pair, tuple[str, ...]]]:
    """Pairs whose nodes have different parameters: as QuantizeLinear has them, as a DequantizeLinear has, and what those give that differ."""
    index = Index(model)
    known = constants(model)
    found = []
    for pair in find_pairs(model):
        others = {}
        for result in pair.results:
            other = _read_by(index.producers[result], pair, known)
            same_scale = np.array_equal(other.scale, pair.scale)
            if not (same_scale and np.array_equal(other.zero, pair.zero)):
                others[result] = other
        if others:
            found.append((pair, next(iter(others.values())), tuple(others)))
    return found


def _read_by(node: onnx.NodeProto, pair: Pair, known: Mapping[str, Array]) -> Pair:
    """The pair with the parameters of one of its DequantizeLinear."""
    scale = known.get(node.input[1], pair.scale).astype(np.float64)
    zero = pair.zero
    if len(node.input) > 2:
        zero = known.get(node.input[2], pair.zero)
    return replace(pair, scale=scale, zero=zero)


def _difference(wrong: Pair, right: Pair) -> str:
    """What one of two nodes has instead."""
    if np.array_equal(wrong.scale, right.scale):
        return f"its zero point is {_number(wrong.zero)}, and that of the other node of its pair {_number(right.zero)}"
    ratio = float(wrong.scale.reshape(-1)[0] / max(float(right.scale.reshape(-1)[0]), _TINY))
    return f"its scale is {ratio:.3g} times that of the other node of its pair"


def _repair(output: str, right: Pair, what: str) -> Repair:
    return Repair(
        output=output,
        parameter=Parameter.OF_A_RANGE,
        what=what,
        scale=right.scale,
        zero=right.zero,
    )


def _ranges_off(study: Study) -> list[Pair]:
    """Activations with one scale whose range does not fit what the float graph computes, in graph order."""
    off = []
    for pair in study.pairs:
        if pair.value not in study.statistics or pair.scale.size > 1:
            continue
        low, high = study.observed_range(pair)
        least, most = (float(limit.reshape(-1)[0]) for limit in pair.limits)
        reach = max(high, 0.0) - min(low, 0.0)
        beyond = max(high - most, least - low, 0.0)
        span = most - least
        if pair.symmetric and pair.dtype.startswith("int"):
            reach = 2 * max(abs(low), abs(high))
        if beyond > _CLIPPED * reach or span > _UNUSED * max(reach, _TINY):
            off.append(pair)
    return off


def _zero_points(pair: Pair, low: float) -> Iterator[Array]:
    """Zero points that go with the scale: the lowest level, where a ReLU is part of the rounding, and the one that the values ask for."""
    least, most = INTEGER_LIMITS[pair.dtype]
    scale = float(pair.scale.reshape(-1)[0])
    asked = int(np.clip(np.rint(least - min(low, 0.0) / scale), least, most))
    for zero in dict.fromkeys((least, asked, (least + most + 1) // 2)):
        if zero != int(pair.zero.reshape(-1)[0]):
            yield np.full(pair.zero.shape, zero).astype(pair.zero.dtype)


def _exchange(one: Pair, other: Pair) -> list[tuple[Pair, Pair, str]]:
    what = "its scale is that of `{}`, and the other way round"
    return [
        (one, replace(one, scale=other.scale), what.format(other.value)),
        (other, replace(other, scale=one.scale), what.format(one.value)),
    ]


def _number(zero: Array) -> int:
    return int(zero.reshape(-1)[0])
