"""Scale a channel where it is made and unscale it where it is read: the float graph says the same, and quantization costs less.

Between the two may stand what commutes with a positive factor: ReLU, LeakyReLU, pooling; a Clip at zero below, as long as no channel is scaled
beyond what it reached of the upper bound; depthwise convolutions, which are producer and consumer in one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import Index, attribute

Array = np.ndarray[Any, Any]
_COMMUTES = (
    "Relu",
    "LeakyRelu",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Dropout",
    "Identity",
)
_SMALLEST = 2.0**-16
"""Channels (and weights) smaller than this share of the largest one count as this share, so that no factor explodes (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A producer of channels, the value that its consumers read, and the consumers."""

    producer: onnx.NodeProto
    value: str
    consumers: tuple[onnx.NodeProto, ...]
    bound: float | None = None
    """The upper bound of a Clip on the way."""

    @property
    def has_depthwise_consumers(self) -> bool:
        """True when rescaling costs the consumers nothing: a depthwise convolution has a scale for each channel."""
        return all(
            consumer.op_type == "Conv" and int(attribute(consumer, "group", 1)) > 1
            for consumer in self.consumers
        )


def links(index: Index, producers: tuple[str, ...]) -> Iterator[Link]:
    """Every place where channels can be rescaled, in graph order."""
    for node in index.model.graph.node:
        if node.op_type not in producers or not _is_scalable(index, node):
            continue
        value, bound = _skip_commuting(index, node.output[0])
        consumers = index.consumers[value]
        if not consumers or value in index.outputs:
            continue
        if all(_can_unscale(index, consumer, value) for consumer in consumers):
            yield Link(producer=node, value=value, consumers=tuple(consumers), bound=bound)


def _skip_commuting(index: Index, value: str) -> tuple[str, float | None]:
    """The value behind all single consumers that commute with a positive factor, and the upper bound of the last Clip among them."""
    bound: float | None = None
    while len(index.consumers[value]) == 1 and value not in index.outputs:
        consumer = index.consumers[value][0]
        upper = _clip_bound(index, consumer)
        if consumer.op_type not in _COMMUTES and upper is None:
            break
        value = consumer.output[0]
        bound = upper or bound
    return value, bound


def factors(
    link: Link, stats: Mapping[str, Statistics], index: Index, strength: float
) -> Array | None:
    """What each channel is divided by: its own largest value against the largest of all, or against the Clip's bound."""
    observed = stats.get(link.value)
    if observed is None or observed.channel_low is None or observed.channel_high is None:
        return None
    largest = np.maximum(np.abs(observed.channel_low), np.abs(observed.channel_high))
    if not largest.any() or largest.size != _channel_count(index, link.producer):
        return None
    top = float(largest.max())
    used = largest > 0
    floored = np.maximum(largest, top * _SMALLEST)
    if link.bound is not None:
        shares = np.where(used, np.minimum(floored / link.bound, 1.0), 1.0)
        if link.has_depthwise_consumers:
            strength = 1.0
        return np.asarray(shares**strength)
    if link.has_depthwise_consumers:
        return np.where(used, floored / top, 1.0)
    weight = np.max([_weight_ranges(index, consumer) for consumer in link.consumers], axis=0)
    weight = np.maximum(weight, float(weight.max()) * _SMALLEST or 1.0)
    divisor = floored**strength / weight ** (1 - strength)
    geometric_mean = np.exp(np.log(divisor[used]).mean())
    return np.asarray(np.where(used, divisor / geometric_mean, 1.0))


def rescale(index: Index, link: Link, divisor: Array) -> None:
    """Apply: the producer's channels are divided, the consumers multiply."""
    for name, axis in _channel_weights(index, link.producer):
        _multiply(index, name, 1 / divisor, axis)
    for consumer in link.consumers:
        _multiply(index, consumer.input[1], divisor, _input_axis(consumer))


def _is_scalable(index: Index, node: onnx.NodeProto) -> bool:
    """A producer whose weights are constants of its own, so that no other node is changed with it."""
    names = [name for name, _ in _channel_weights(index, node)]
    return bool(names) and all(
        name in index.weights and len(index.consumers[name]) == 1 for name in names
    )


def _channel_weights(index: Index, node: onnx.NodeProto) -> list[tuple[str, int]]:
    """The constants that make a node's output channels, each with the axis of the channels."""
    if node.op_type == "LayerNormalization":
        return [(name, -1) for name in node.input[1:] if name]
    if node.op_type not in ("Conv", "Gemm"):
        return []
    axis = 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1
    weights = [(node.input[1], axis)]
    if len(node.input) > 2 and node.input[2]:
        weights.append((node.input[2], -1))
    return weights


def _can_unscale(index: Index, node: onnx.NodeProto, value: str) -> bool:
    """True for a layer that multiplies this value, channel by channel, with a constant weight of its own."""
    weight = index.weight_of(node)
    if weight is None or node.input[0] != value or len(index.consumers[weight]) != 1:
        return False
    if node.op_type == "Conv":
        group = int(attribute(node, "group", 1))
        dims = index.weights[weight].dims
        return group == 1 or (group == dims[0] and dims[1] == 1)
    return node.op_type in ("MatMul", "Gemm") and not attribute(node, "transA", 0)


def _input_axis(node: onnx.NodeProto) -> int:
    """The axis of a weight that the input's channels run along."""
    if node.op_type == "Conv":
        return 0 if int(attribute(node, "group", 1)) > 1 else 1
    return 1 if attribute(node, "transB", 0) else 0


def _weight_ranges(index: Index, node: onnx.NodeProto) -> Array:
    """The largest weight of each input channel."""
    weight = np.abs(index.array(node.input[1]))
    axis = _input_axis(node)
    return np.asarray(weight.max(tuple(other for other in range(weight.ndim) if other != axis)))


def _channel_count(index: Index, node: onnx.NodeProto) -> int:
    name, axis = _channel_weights(index, node)[0]
    return int(index.weights[name].dims[axis])


def _multiply(index: Index, name: str, factor: Array, axis: int) -> None:
    array = index.array(name)
    shape = [1] * array.ndim
    shape[axis] = factor.size
    index.store(name, (array.astype(np.float64) * factor.reshape(shape)).astype(array.dtype))


def _clip_bound(index: Index, node: onnx.NodeProto) -> float | None:
    """The upper bound of a Clip whose lower bound is zero."""
    if node.op_type != "Clip" or len(node.input) < 3:
        return None
    if not {node.input[1], node.input[2]} <= set(index.weights):
        return None
    low, high = (float(index.array(name).reshape(())) for name in node.input[1:3])
    if low == 0.0 and high > 0.0:
        return high
    return None
