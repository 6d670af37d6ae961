"""Scale, zero point and axis of constants kept in integers, checked against the float weights they were made from.

Whatever the file was calibrated on, a weight that is dequantized must give its float weight but for the rounding of one step. Where it does not, and
another axis, zero point or scale makes it fit, that parameter is wrong. Weights that were changed on purpose (equalized, corrected) fit neither way.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.qdq import Weight, constants, find_biases, find_weights
from onnxproof.quantization.qdq_edit import add_initializer, bias_scale_of, layer_of_bias

Array = np.ndarray[Any, Any]
_LEAST_CORRELATION = 0.9
"""Between integers and the float weight they were made from, channel by channel. Four bits leave 0.98; other weights of the same shape give less than 0.3
on the nets of `bench/quantized_faults.py`."""
_FITS = 1.0
"""Root mean square of what dequantizing leaves, in steps. Rounding to nearest leaves 0.29, learned rounding 0.5; a scale that is a tenth off leaves 3 at 8 bits."""
_IMPROVES = 4.0
"""The file's own parameters must leave this many times more than the better ones. Not measured."""
_SAME_SCALE = 0.02
"""Relative distance up to which two scales are the same: a scale estimated from rounded weights of 9 elements is 1 % off."""
_SAME_PRODUCT = 1e-3
"""The same for a bias scale and the product that it should be; both are float32. Not measured."""
_SAMPLED = 4096
"""Elements of a weight that are compared before all of them are. Not measured."""
_FEWEST = 4
"""Elements of a channel for which a correlation says something. Not measured."""


class Parameter(StrEnum):
    """What kind of parameter is wrong."""

    AXIS = "axis"
    OF_A_CONSTANT = "scale or zero point of a weight or a bias"
    OF_A_RANGE = "scale or zero point of a value that is computed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """A parameter of one node that is wrong, and what it should be."""

    output: str
    """What the node gives."""
    parameter: Parameter
    what: str
    """The parameter in words, with what it should be."""
    scale: Array
    zero: Array | None = None
    axis: int | None = None
    integers: Array | None = None
    """Other integers, where a bias is written in other units."""


def find_weight_repairs(model: onnx.ModelProto, floats: Iterable[Array]) -> list[Repair]:
    """The wrong parameters of weights, in graph order."""
    by_shape = _by_shape(floats)
    weights = find_weights(model)
    scales = {weight.result: weight.scale for weight in weights}
    repairs = []
    for weight in weights:
        plain = _original(weight, by_shape.get(weight.integers.shape, []))
        repair = None if plain is None else _weight_repair(weight, plain, scales)
        if repair is not None:
            repairs.append(repair)
    return repairs


def find_bias_repairs(model: onnx.ModelProto, floats: Iterable[Array]) -> list[Repair]:
    """Biases whose scale is not that of the layer's input times that of its weights: kernels take it for granted."""
    by_shape = _by_shape(floats)
    index = Index(model)
    known = constants(model)
    repairs = []
    for bias in find_biases(model):
        layer = layer_of_bias(index, bias.result)
        product = None if layer is None else bias_scale_of(layer, index, known)
        if product is None or product.size != bias.scale.size:
            continue
        product = product.reshape(bias.scale.shape)
        if np.abs(bias.scale / product - 1).max() > _SAME_PRODUCT:
            repairs.append(_bias_repair(bias, product, by_shape))
    return repairs


def _by_shape(floats: Iterable[Array]) -> dict[tuple[int, ...], list[Array]]:
    arrays: dict[tuple[int, ...], list[Array]] = {}
    for array in floats:
        arrays.setdefault(array.shape, []).append(array.astype(np.float64))
    return arrays


def apply_repairs(model: onnx.ModelProto, repairs: Iterable[Repair]) -> onnx.ModelProto:
    """A copy with the right parameters, under names of their own."""
    changed = copy_model(model)
    nodes = {node.output[0]: node for node in changed.graph.node}
    for repair in repairs:
        node = nodes[repair.output]
        values = {0: repair.integers, 1: repair.scale.astype(np.float32), 2: repair.zero}
        for place, value in values.items():
            if value is None or place >= len(node.input) + (place == 2):
                continue
            name = f"{repair.output}_repaired_{place}_{len(changed.graph.initializer)}"
            add_initializer(changed, value, name)
            if place == len(node.input):
                node.input.append(name)
            node.input[place] = name
        if repair.axis is not None:
            for old in [held for held in node.attribute if held.name == "axis"]:
                node.attribute.remove(old)
            node.attribute.append(onnx.helper.make_attribute("axis", repair.axis))
    del changed.graph.value_info[:]
    return changed


def _original(weight: Weight, candidates: list[Array]) -> Array | None:
    """The float weight that the integers were made from, whatever scale, zero point and axis say.

    1. One that fits as it is: the common case, asked of a sample of the elements, since a model may have many weights of one shape.
    2. Else those that go with the integers (a norm folded in or not): the one that the file's own parameters fit best.
    """
    floats, step = weight.floats, np.broadcast_to(weight.step, weight.integers.shape)
    every = max(1, weight.integers.size // _SAMPLED)
    sample = floats.reshape(-1)[::every], step.reshape(-1)[::every]
    for plain in candidates:
        error = (sample[0] - plain.reshape(-1)[::every]) / np.maximum(np.abs(sample[1]), 1e-30)
        if np.sqrt(np.mean(error**2)) <= _FITS and _misfit(weight, plain) <= _FITS:
            return plain
    related = [c for c in candidates if _correlation(weight.integers, c) > _LEAST_CORRELATION]
    return min(related, key=lambda plain: _misfit(weight, plain), default=None)


def _correlation(integers: Array, plain: Array) -> float:
    """Over the whole array, or the mean over the slices along that axis where it is largest."""
    whole = [_slice_correlation(integers.reshape(1, -1), plain.reshape(1, -1))]
    if integers.ndim > 1:
        for axis in range(integers.ndim):
            count = integers.shape[axis]
            if integers.size >= _FEWEST * count:
                rows = (np.moveaxis(a, axis, 0).reshape(count, -1) for a in (integers, plain))
                whole.append(_slice_correlation(*rows))
    return max(whole)


def _slice_correlation(integers: Array, plain: Array) -> float:
    """The mean of Pearson's correlation of the rows; rows of one value say nothing."""
    one = integers.astype(np.float64) - integers.astype(np.float64).mean(1, keepdims=True)
    other = plain - plain.mean(1, keepdims=True)
    size = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    known = size > 0
    if not known.any():
        return 0.0
    return float(((one * other).sum(1)[known] / size[known]).mean())


def _misfit(weight: Weight, plain: Array) -> float:
    """What dequantizing leaves of the float weight, rms in steps: of the largest channel that is worst off."""
    step = np.maximum(np.abs(weight.step), 1e-30)
    error = np.square((weight.floats - plain) / step)
    if weight.scale.ndim == 1 and weight.scale.size > 1:
        others = tuple(a for a in range(plain.ndim) if a != weight.axis % plain.ndim)
        return float(np.sqrt(error.mean(others)).max())
    return float(np.sqrt(error.mean()))


def _weight_repair(weight: Weight, plain: Array, scales: Mapping[str, Array]) -> Repair | None:
    """The first parameter that, put right, makes the weight fit: axis, zero point, then scale."""
    misfit = _misfit(weight, plain)
    if misfit <= _FITS or weight.scale.ndim > 1:
        return None
    trials = (*_other_axes(weight), *_other_zero(weight, plain))
    for changed, what in (*trials, *_other_scale(weight, plain, scales)):
        left = _misfit(changed, plain)
        if left <= _FITS and left * _IMPROVES < misfit:
            moved = changed.axis != weight.axis
            return Repair(
                output=weight.result,
                parameter=Parameter.AXIS if moved else Parameter.OF_A_CONSTANT,
                what=what,
                scale=changed.scale,
                zero=changed.zero,
                axis=changed.axis if changed.scale.size > 1 else None,
            )
    return None


def _other_axes(weight: Weight) -> Iterator[tuple[Weight, str]]:
    if weight.scale.size == 1:
        return
    for axis, size in enumerate(weight.integers.shape):
        if size == weight.scale.size and axis != weight.axis % weight.integers.ndim:
            yield replace(weight, axis=axis), f"its axis is {weight.axis} and should be {axis}"


def _other_zero(weight: Weight, plain: Array) -> Iterator[tuple[Weight, str]]:
    """The zero point that the float weight asks for: one for all, or one for each scale."""
    limits = np.iinfo(weight.zero.dtype) if weight.zero.dtype.kind in "iu" else None
    if limits is None:
        return
    asked = weight.integers.astype(np.float64) - plain / weight.step
    zero = np.clip(np.rint(_by_scale(weight, asked, np.median)), limits.min, limits.max)
    changed = replace(weight, zero=zero.reshape(weight.zero.shape).astype(weight.zero.dtype))
    was, now = (_in_words(array) for array in (weight.zero, changed.zero))
    yield changed, f"its zero point is {was} and should be {now}"


def _other_scale(
    weight: Weight, plain: Array, scales: Mapping[str, Array]
) -> Iterator[tuple[Weight, str]]:
    """The scale that the float weight asks for, in the words of where it stands instead."""
    centred = weight.integers.astype(np.float64) - weight.offset
    product = _by_scale(weight, centred * plain, np.sum)
    scale = product / np.maximum(_by_scale(weight, centred**2, np.sum), 1e-30)
    scale = np.where(scale > 0, scale, weight.scale.reshape(-1)).reshape(weight.scale.shape)
    for name, other in scales.items():
        if name != weight.result and other.shape == scale.shape and _same(other, scale):
            yield replace(weight, scale=other), _of_another(weight, scales, name)
    if scale.size > 2 and _same(np.sort(weight.scale), np.sort(scale)):
        order = np.argsort(np.argsort(scale))
        permuted = np.sort(weight.scale)[order]
        yield replace(weight, scale=permuted), "the scales of its channels are in another order"
    yield replace(weight, scale=scale), _ratio_in_words(weight.scale, scale)


def _of_another(weight: Weight, scales: Mapping[str, Array], name: str) -> str:
    exchanged = f"its scale stands at `{name}`"
    owner = next(
        (n for n, s in scales.items() if n != weight.result and _same(s, weight.scale)), ""
    )
    if owner:
        return f"{exchanged}, and it has that of `{owner}`"
    return exchanged


def _ratio_in_words(given: Array, asked: Array) -> str:
    ratio = given.reshape(-1) / asked.reshape(-1)
    off = np.abs(np.log(ratio)) > np.log(1 + _SAME_SCALE)
    if ratio.size > 1 and off.sum() == 1:
        place = int(np.flatnonzero(off)[0])
        return f"the scale of its channel {place} is {ratio[place]:.3g} times what it should be"
    if np.ptp(ratio) <= _SAME_SCALE * 2 * ratio.max():
        return f"its scale is {np.median(ratio):.3g} times what it should be"
    return f"the scales of {off.sum()} of its {ratio.size} channels are not those of its weight"


def _same(one: Array, other: Array) -> bool:
    if one.shape != other.shape:
        return False
    return bool((np.abs(one - other) <= _SAME_SCALE * np.abs(other)).all())


def _by_scale(weight: Weight, values: Array, reduce: Any) -> Array:
    """One number for each scale."""
    if weight.scale.size == 1:
        return np.asarray(reduce(values)).reshape(1)
    rows = np.moveaxis(values, weight.axis, 0).reshape(weight.scale.size, -1)
    return np.asarray(reduce(rows, axis=1))


def _in_words(array: Array) -> str:
    values = np.unique(array)
    if values.size == 1:
        return str(int(values[0]))
    return f"{int(values[0])} to {int(values[-1])}"


def _bias_repair(
    bias: Weight, product: Array, by_shape: Mapping[tuple[int, ...], list[Array]]
) -> Repair:
    """The integers stay where the product makes them the module's bias; else they are written anew in its units."""
    times = float(np.median(bias.scale / product))
    what = f"its scale is {times:.3g} times that of its layer's input times that of the weights"
    repair = Repair(output=bias.result, parameter=Parameter.OF_A_CONSTANT, what=what, scale=product)
    plain = _original(bias, by_shape.get(bias.integers.shape, []))
    kept = replace(bias, scale=product)
    if plain is not None and _misfit(kept, plain) * _IMPROVES < _misfit(bias, plain):
        return repair
    integers = np.clip(np.rint(bias.floats / kept.step), -(2**31), 2**31 - 1).astype(np.int32)
    return replace(repair, integers=integers)
