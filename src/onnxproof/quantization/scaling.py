"""Scale a channel where it is made and unscale it where it is read: the float graph says the same, and quantization costs less.

Between the two may stand what commutes with a positive factor: ReLU, LeakyReLU, pooling; a Clip at zero below, as long as no channel is scaled
beyond what it reached of the upper bound; depthwise convolutions, which are maker and reader in one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A maker of channels, the value that its readers take, and the readers."""

    maker: onnx.NodeProto
    value: str
    readers: tuple[onnx.NodeProto, ...]
    bound: float | None = None
    """The upper bound of a Clip on the way."""

    @property
    def free(self) -> bool:
        """True when the readers don't care: a depthwise convolution has a scale for each channel."""
        return all(
            reader.op_type == "Conv" and int(attribute(reader, "group", 1)) > 1
            for reader in self.readers
        )


def links(index: Index, makers: tuple[str, ...]) -> Iterator[Link]:
    """Every place where channels can be rescaled, in graph order."""
    for node in index.model.graph.node:
        if node.op_type not in makers or not _scalable(index, node):
            continue
        value, bound = node.output[0], None
        while len(index.readers[value]) == 1 and value not in index.outputs:
            through = index.readers[value][0]
            limit = _clip(index, through)
            if through.op_type not in _COMMUTES and limit is None:
                break
            value, bound = through.output[0], limit or bound
        readers = index.readers[value]
        if (
            readers
            and value not in index.outputs
            and all(_readable(index, reader, value) for reader in readers)
        ):
            yield Link(maker=node, value=value, readers=tuple(readers), bound=bound)


def factors(
    link: Link, stats: Mapping[str, Statistics], index: Index, strength: float
) -> Array | None:
    """What each channel is divided by: its own reach against the largest one's, or against the Clip's bound."""
    seen = stats.get(link.value)
    if seen is None or seen.channel_low is None or seen.channel_high is None:
        return None
    reach = np.maximum(np.abs(seen.channel_low), np.abs(seen.channel_high))
    if not reach.any() or reach.size != _channels(index, link.maker):
        return None
    top = float(reach.max())
    alive = np.maximum(reach, top * 2.0**-16)
    if link.bound is not None:
        return np.where(reach > 0, np.minimum(alive / link.bound, 1.0), 1.0) ** (
            1.0 if link.free else strength
        )
    if link.free:
        return np.where(reach > 0, alive / top, 1.0)
    weight = np.max([_reader_reach(index, reader) for reader in link.readers], axis=0)
    weight = np.maximum(weight, float(weight.max()) * 2.0**-16 or 1.0)
    found = alive**strength / weight ** (1 - strength)
    return np.asarray(np.where(reach > 0, found / np.exp(np.log(found[reach > 0]).mean()), 1.0))


def rescale(index: Index, link: Link, divisor: Array) -> None:
    """Apply: the maker's channels are divided, the readers multiply."""
    for name, axis in _made_by(index, link.maker):
        _multiply(index, name, 1 / divisor, axis)
    for reader in link.readers:
        _multiply(index, reader.input[1], divisor, _input_axis(reader))


def _scalable(index: Index, node: onnx.NodeProto) -> bool:
    """A maker whose weights are constants of its own, so that no other node is changed with it."""
    return bool(_made_by(index, node)) and all(
        name in index.weights and len(index.readers[name]) == 1 for name, _ in _made_by(index, node)
    )


def _made_by(index: Index, node: onnx.NodeProto) -> list[tuple[str, int]]:
    """The constants that make a node's output channels, each with the axis of the channels."""
    if node.op_type in ("Conv", "Gemm"):
        axis = 0 if node.op_type == "Conv" or attribute(node, "transB", 0) else 1
        return [
            (node.input[1], axis),
            *([(node.input[2], -1)] if len(node.input) > 2 and node.input[2] else []),
        ]
    if node.op_type == "LayerNormalization":
        return [(name, -1) for name in node.input[1:] if name]
    return []


def _readable(index: Index, node: onnx.NodeProto, value: str) -> bool:
    weight = index.weight_of(node)
    if weight is None or node.input[0] != value or len(index.readers[weight]) != 1:
        return False
    if node.op_type == "Conv":
        return int(attribute(node, "group", 1)) in (1, int(index.weights[weight].dims[0])) and (
            attribute(node, "group", 1) == 1 or index.weights[weight].dims[1] == 1
        )
    return node.op_type in ("MatMul", "Gemm") and not attribute(node, "transA", 0)


def _input_axis(node: onnx.NodeProto) -> int:
    if node.op_type == "Conv":
        return 0 if int(attribute(node, "group", 1)) > 1 else 1
    return 1 if attribute(node, "transB", 0) else 0


def _reader_reach(index: Index, node: onnx.NodeProto) -> Array:
    weight = np.abs(index.array(node.input[1]))
    axis = _input_axis(node)
    return np.asarray(weight.max(tuple(a for a in range(weight.ndim) if a != axis)))


def _channels(index: Index, node: onnx.NodeProto) -> int:
    name, axis = _made_by(index, node)[0]
    return int(index.weights[name].dims[axis])


def _multiply(index: Index, name: str, factor: Array, axis: int) -> None:
    array = index.array(name)
    shape = [1] * array.ndim
    shape[axis] = factor.size
    index.store(name, (array.astype(np.float64) * factor.reshape(shape)).astype(array.dtype))


def _clip(index: Index, node: onnx.NodeProto) -> float | None:
    """The upper bound of a Clip whose lower bound is zero."""
    if (
        node.op_type != "Clip"
        or len(node.input) < 3
        or not {node.input[1], node.input[2]} <= set(index.weights)
    ):
        return None
    low, high = (float(index.array(name).reshape(())) for name in node.input[1:3])
    return high if low == 0.0 and high > 0.0 else None
