"""Ways in which the parameters of a quantized file go wrong: each kind changes one file in place and says which nodes are guilty."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnxproof.quantization.float_graph import Index
from onnxproof.quantization.qdq import Pair, Weight, find_biases, find_pairs, find_weights
from onnxproof.quantization.qdq_edit import with_floats, without_rounding

Array = np.ndarray[Any, Any]
Random = np.random.Generator
PARAMETERS = ("attribute", "weights", "quant-scheme")


class NotApplicable(Exception):
    """The file has nothing that this kind could change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """What was changed: the outputs of the guilty nodes."""

    guilty: tuple[str, ...]
    codes: tuple[str, ...] = PARAMETERS


Kind = Callable[[onnx.ModelProto, Random], Planted]
KINDS: dict[str, Kind] = {}


def kind(name: str) -> Callable[[Kind], Kind]:
    """Register a kind of fault."""

    def register(plant: Kind) -> Kind:
        KINDS[name] = plant
        return plant

    return register


def _choose(items: list[Any], random: Random) -> Any:
    if not items:
        raise NotApplicable
    return items[int(random.integers(len(items)))]


def _node(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return Index(model).producers[output]


def _set_input(model: onnx.ModelProto, output: str, place: int, value: Array) -> None:
    """Let the node that gives `output` read another constant."""
    name = f"planted_{output}_{place}"
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    _node(model, output).input[place] = name


def _layer_weights(model: onnx.ModelProto) -> list[Weight]:
    return [weight for weight in find_weights(model) if weight.integers.ndim > 1]


def _inner_pairs(model: onnx.ModelProto) -> list[Pair]:
    """Activations whose range is an ordinary one."""
    return [pair for pair in find_pairs(model) if pair.scale.size == 1]


def _all_of(pair: Pair) -> tuple[str, ...]:
    return (pair.quantize, *pair.results)


@kind("weight-axis")
def weight_axis(model: onnx.ModelProto, random: Random) -> Planted:
    """DequantizeLinear goes along another axis of the same length."""
    weights = [
        weight
        for weight in _layer_weights(model)
        if weight.scale.size > 1 and weight.integers.shape.count(weight.scale.size) > 1
    ]
    weight = _choose(weights, random)
    shape = weight.integers.shape
    axes = [a for a in range(len(shape)) if a != weight.axis and shape[a] == weight.scale.size]
    node = _node(model, weight.result)
    for old in list(node.attribute):
        if old.name == "axis":
            node.attribute.remove(old)
    node.attribute.append(helper.make_attribute("axis", axes[0]))
    return Planted(guilty=(weight.result,))


@kind("weight-zero-point")
def weight_zero_point(model: onnx.ModelProto, random: Random) -> Planted:
    """A weight's zero point is off by 8 to 40."""
    weights = [w for w in _layer_weights(model) if len(_node(model, w.result).input) > 2]
    weight = _choose(weights, random)
    step = int(random.integers(8, 41))
    zero = weight.zero.astype(np.int64)
    if (zero + step > np.iinfo(weight.zero.dtype).max).any():
        step = -step
    _set_input(model, weight.result, 2, (zero + step).astype(weight.zero.dtype))
    return Planted(guilty=(weight.result,))


def _moved_zero(pair: Pair, random: Random) -> Array:
    """A zero point that is off by an eighth to a third of the levels."""
    limits = np.iinfo(pair.zero.dtype)
    levels = int(limits.max) - int(limits.min) + 1
    step = int(random.integers(levels // 8, levels // 3))
    zero = int(pair.zero.reshape(-1)[0])
    if zero + step > limits.max:
        step = -step
    return np.asarray(zero + step, pair.zero.dtype)


@kind("activation-zero-point")
def activation_zero_point(model: onnx.ModelProto, random: Random) -> Planted:
    """Both nodes of a pair have another zero point: one end of the range is clipped."""
    pair = _choose(_inner_pairs(model), random)
    zero = _moved_zero(pair, random)
    for output in _all_of(pair):
        _set_input(model, output, 2, zero)
    return Planted(guilty=_all_of(pair))


@kind("dequantize-zero-point")
def dequantize_zero_point(model: onnx.ModelProto, random: Random) -> Planted:
    """DequantizeLinear takes another zero point off than QuantizeLinear added."""
    pair = _choose(_inner_pairs(model), random)
    zero = _moved_zero(pair, random)
    for output in pair.results:
        _set_input(model, output, 2, zero)
    return Planted(guilty=_all_of(pair))


@kind("activation-scales-swapped")
def activation_scales_swapped(model: onnx.ModelProto, random: Random) -> Planted:
    """Two pairs have each other's scale."""
    pairs = _inner_pairs(model)
    first = _choose(pairs, random)
    others = [p for p in pairs if not 2 / 3 < float(p.scale.max() / first.scale.max()) < 1.5]
    second = _choose(others, random)
    for output in _all_of(first):
        _set_input(model, output, 1, second.scale.astype(np.float32))
    for output in _all_of(second):
        _set_input(model, output, 1, first.scale.astype(np.float32))
    return Planted(guilty=(*_all_of(first), *_all_of(second)))


@kind("dequantize-scale-of-another")
def dequantize_scale_of_another(model: onnx.ModelProto, random: Random) -> Planted:
    """DequantizeLinear reads the scale of another pair."""
    pairs = _inner_pairs(model)
    first = _choose(pairs, random)
    second = _choose([p for p in pairs if p.quantize != first.quantize], random)
    for output in first.results:
        _set_input(model, output, 1, second.scale.astype(np.float32))
    return Planted(guilty=_all_of(first))


@kind("weight-scales-swapped")
def weight_scales_swapped(model: onnx.ModelProto, random: Random) -> Planted:
    """Two weights have each other's scales."""
    weights = _layer_weights(model)
    first = _choose(weights, random)
    others = [w for w in weights if w.name != first.name and w.scale.size == first.scale.size]
    second = _choose(others, random)
    _set_input(model, first.result, 1, second.scale.astype(np.float32))
    _set_input(model, second.result, 1, first.scale.astype(np.float32))
    return Planted(guilty=(first.result, second.result))


@kind("weight-scale-of-another")
def weight_scale_of_another(model: onnx.ModelProto, random: Random) -> Planted:
    """A weight has the scale of another layer."""
    weights = _layer_weights(model)
    first = _choose(weights, random)
    others = [w for w in weights if w.name != first.name and w.scale.size == first.scale.size]
    second = _choose(others, random)
    _set_input(model, first.result, 1, second.scale.astype(np.float32))
    return Planted(guilty=(first.result,))


@kind("weight-scale-doubled")
def weight_scale_doubled(model: onnx.ModelProto, random: Random) -> Planted:
    """A weight's scale is twice what it was."""
    weight = _choose(_layer_weights(model), random)
    _set_input(model, weight.result, 1, (weight.scale * 2).astype(np.float32))
    return Planted(guilty=(weight.result,))


@kind("dequantize-scale-doubled")
def dequantize_scale_doubled(model: onnx.ModelProto, random: Random) -> Planted:
    """DequantizeLinear of an activation gives twice the value."""
    pair = _choose(_inner_pairs(model), random)
    for output in pair.results:
        _set_input(model, output, 1, (pair.scale * 2).astype(np.float32))
    return Planted(guilty=_all_of(pair))


@kind("activation-scale-narrow")
def activation_scale_narrow(model: onnx.ModelProto, random: Random) -> Planted:
    """One pair's scale is a quarter: large values are clipped there."""
    pair = _choose(_inner_pairs(model), random)
    for output in _all_of(pair):
        _set_input(model, output, 1, (pair.scale / 4).astype(np.float32))
    return Planted(guilty=_all_of(pair), codes=(*PARAMETERS, "calibration"))


@kind("weight-scales-permuted")
def weight_scales_permuted(model: onnx.ModelProto, random: Random) -> Planted:
    """The scales of a weight's channels are in another order."""
    weight = _choose([w for w in _layer_weights(model) if w.scale.size > 2], random)
    order = random.permutation(weight.scale.size)
    _set_input(model, weight.result, 1, weight.scale[order].astype(np.float32))
    return Planted(guilty=(weight.result,))


@kind("one-channel-scale")
def one_channel_scale(model: onnx.ModelProto, random: Random) -> Planted:
    """The scale of one channel of a weight is ten times too large."""
    weight = _choose([w for w in _layer_weights(model) if w.scale.size > 2], random)
    scale = weight.scale.copy()
    scale[int(np.argmax(scale))] *= 10
    _set_input(model, weight.result, 1, scale.astype(np.float32))
    return Planted(guilty=(weight.result,))


def _biases(model: onnx.ModelProto) -> list[Weight]:
    return [bias for bias in find_biases(model) if np.abs(bias.integers).max(initial=0) > 8]


@kind("bias-scale-doubled")
def bias_scale_doubled(model: onnx.ModelProto, random: Random) -> Planted:
    """A bias has a scale that is four times input times weight."""
    bias = _choose(_biases(model), random)
    _set_input(model, bias.result, 1, (bias.scale * 4).astype(np.float32))
    return Planted(guilty=(bias.result,))


@kind("bias-in-other-units")
def bias_in_other_units(model: onnx.ModelProto, random: Random) -> Planted:
    """A bias is right by its own scale, and that is not input times weight: integer kernels read it by the product."""
    bias = _choose(_biases(model), random)
    _set_input(model, bias.result, 1, (bias.scale / 16).astype(np.float32))
    integers = bias.integers.astype(np.int64) * 16
    if np.abs(integers).max() >= 2**31:
        raise NotApplicable
    _set_input(model, bias.result, 0, integers.astype(np.int32))
    return Planted(guilty=(bias.result, *_readers(model, bias.result)))


def _readers(model: onnx.ModelProto, value: str) -> list[str]:
    return [node.output[0] for node in Index(model).consumers[value]]


_WEIGHT_SCALE = {"QLinearConv": 4, "QLinearMatMul": 4, "QGemm": 4}
_INPUT_SCALE = {"QLinearConv": 1, "QLinearMatMul": 1, "QGemm": 1, "QLinearAdd": 1}


def _operator(model: onnx.ModelProto, places: dict[str, int], random: Random) -> onnx.NodeProto:
    weights = Index(model).weights
    nodes = [
        node
        for node in model.graph.node
        if node.op_type in places and node.input[places[node.op_type]] in weights
    ]
    return _choose(nodes, random)


@kind("operator-weight-scale")
def operator_weight_scale(model: onnx.ModelProto, random: Random) -> Planted:
    """QLinearConv, QGemm or QLinearMatMul with twice its weight's scale."""
    node = _operator(model, _WEIGHT_SCALE, random)
    place = _WEIGHT_SCALE[node.op_type]
    scale = Index(model).array(node.input[place])
    _set_input(model, node.output[0], place, scale * np.float32(2))
    return Planted(guilty=(node.output[0],))


@kind("operator-input-scale")
def operator_input_scale(model: onnx.ModelProto, random: Random) -> Planted:
    """An integer operator that reads its input by another scale than it was written with."""
    node = _operator(model, _INPUT_SCALE, random)
    place = _INPUT_SCALE[node.op_type]
    scale = Index(model).array(node.input[place])
    _set_input(model, node.output[0], place, scale * np.float32(2))
    return Planted(guilty=(node.output[0], *_makers(model, node.input[0])))


def _makers(model: onnx.ModelProto, value: str) -> list[str]:
    producer = Index(model).producers.get(value)
    return [] if producer is None else [producer.output[0]]


# Healthy changes: other words for the same file.


def negative_axes(model: onnx.ModelProto) -> None:
    """Axes counted from the end."""
    ranks = {weight.result: weight.integers.ndim for weight in find_weights(model)}
    for node in model.graph.node:
        for held in node.attribute:
            if held.name == "axis" and node.output[0] in ranks and held.i >= 0:
                held.i -= ranks[node.output[0]]


def input_axis(model: onnx.ModelProto) -> None:
    """Weights of linear layers alone, with a scale for each input instead of each output: right, though no integer kernel takes it."""
    biases = {bias.result: bias.floats for bias in find_biases(model)}
    kept = with_floats(without_rounding(model), biases)
    model.CopyFrom(kept)
    weights = [weight for weight in _layer_weights(model) if weight.integers.ndim == 2]
    if not weights:
        raise NotApplicable
    for weight in weights:
        node = _node(model, weight.result)
        axis = 1 - weight.axis if weight.scale.size > 1 else 0
        floats = weight.floats
        scale = np.maximum(np.abs(floats).max(axis=1 - axis, keepdims=True), 1e-12) / 127
        _set_input(model, weight.result, 0, np.rint(floats / scale).astype(np.int8))
        _set_input(model, weight.result, 1, scale.reshape(-1).astype(np.float32))
        if len(node.input) > 2:
            _set_input(model, weight.result, 2, np.zeros(scale.size, np.int8))
        for old in [held for held in node.attribute if held.name == "axis"]:
            node.attribute.remove(old)
        node.attribute.append(helper.make_attribute("axis", axis))


TWINS = {"negative-axes": negative_axes, "input-axis": input_axis}
