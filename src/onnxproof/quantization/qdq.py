"""A Q/DQ graph of any tool, read: which values are rounded how, and which constants are kept in integers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.onnxmodel import mapped_weights
from onnxproof.quantization.float_graph import Index, attribute

Array = np.ndarray[Any, Any]
_SIGNED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "BatchNormalization"})
"""Operators whose outputs can be negative."""
INTEGER_LIMITS = {
    "uint8": (0, 255),
    "int8": (-128, 127),
    "uint16": (0, 65535),
    "int16": (-32768, 32767),
    "int4": (-8, 7),
    "uint4": (0, 15),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A value that is rounded: QuantizeLinear and the DequantizeLinear (or several) behind it."""

    value: str
    """The float value before it."""
    quantize: str
    """Output of the QuantizeLinear."""
    results: tuple[str, ...]
    """The float values behind it."""
    scale: Array
    zero: Array
    axis: int
    dtype: str

    @property
    def limits(self) -> tuple[Array, Array]:
        """The real numbers that it can hold, at each end."""
        low, high = INTEGER_LIMITS[self.dtype]
        zero = self.zero.astype(np.float64)
        return (low - zero) * self.scale, (high - zero) * self.scale

    @property
    def symmetric(self) -> bool:
        """True when zero sits in the middle of the levels."""
        low, high = INTEGER_LIMITS[self.dtype]
        return bool((np.abs(self.zero.astype(np.float64) - (low + high + 1) / 2) <= 1).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A constant kept in integers."""

    name: str
    """The integer initializer."""
    result: str
    """The float value behind its DequantizeLinear."""
    integers: Array
    scale: Array
    zero: Array
    axis: int

    @property
    def floats(self) -> Array:
        """What the graph computes with."""
        return np.asarray((self.integers.astype(np.float64) - self.offset) * self.step)

    @property
    def step(self) -> Array:
        """The scale in a shape that broadcasts."""
        return self._broadcast(self.scale).astype(np.float64)

    @property
    def offset(self) -> Array:
        """The zero point in a shape that broadcasts."""
        return self._broadcast(self.zero).astype(np.float64)

    def _broadcast(self, parameter: Array) -> Array:
        """A scale or zero point in a shape that broadcasts: one for all, one for each channel, or one for each block along the axis."""
        if self.scale.ndim <= 1:
            shape = [1] * self.integers.ndim
            if self.scale.size > 1:
                shape[self.axis] = self.scale.size
            return parameter.reshape(shape)
        if self.scale.size > 1 and self.scale.ndim == self.integers.ndim:
            block_size = self.integers.shape[self.axis] // self.scale.shape[self.axis]
            return np.repeat(parameter, block_size, self.axis)
        return parameter


def constants(model: onnx.ModelProto) -> dict[str, Array]:
    """Initializers and Constant nodes by name."""
    arrays = {tensor.name: mapped_weights.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Constant" or not node.attribute:
            continue
        value = node.attribute[0]
        if value.type == onnx.AttributeProto.TENSOR:
            arrays[node.output[0]] = numpy_helper.to_array(value.t)
        elif value.name == "value_float":
            arrays[node.output[0]] = np.asarray(value.f, np.float32)
        elif value.name == "value_int":
            arrays[node.output[0]] = np.asarray(value.i, np.int64)
    return arrays


def find_pairs(model: onnx.ModelProto) -> list[Pair]:
    """Every value that a Q/DQ pair with constant scale rounds, in graph order."""
    index = Index(model)
    known = constants(model)
    pairs = []
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in known or node.input[1] not in known:
            continue
        consumers = index.consumers[node.output[0]]
        if not consumers or any(c.op_type != "DequantizeLinear" for c in consumers):
            continue
        scale = known[node.input[1]].astype(np.float64)
        zero = _zero_point(node, known, np.zeros(scale.shape, np.uint8))
        pairs.append(
            Pair(
                value=node.input[0],
                quantize=node.output[0],
                results=tuple(consumer.output[0] for consumer in consumers),
                scale=scale,
                zero=zero,
                axis=int(attribute(node, "axis", 1)),
                dtype=str(zero.dtype),
            )
        )
    return pairs


def _zero_point(node: onnx.NodeProto, known: Mapping[str, Array], default: Array) -> Array:
    """The constant zero point of a QuantizeLinear or DequantizeLinear; the default where it has none."""
    if len(node.input) <= 2:
        return default
    return known.get(node.input[2], default)


def find_weights(model: onnx.ModelProto) -> list[Weight]:
    """Every constant that is kept in at most 8 bits (int32 biases are not counted)."""
    return [weight for weight in _integer_constants(model) if weight.integers.dtype != np.int32]


def find_biases(model: onnx.ModelProto) -> list[Weight]:
    """Every constant that is kept in 32 bits."""
    return [weight for weight in _integer_constants(model) if weight.integers.dtype == np.int32]


def _integer_constants(model: onnx.ModelProto) -> Iterator[Weight]:
    known = constants(model)
    quantized: dict[str, Array] = {}
    for node in model.graph.node:  # fake quantization of constants: Q and DQ, both kept
        if node.op_type == "QuantizeLinear" and node.input[0] in known and node.input[1] in known:
            quantized[node.output[0]] = _quantize_constant(node, known)
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[1] not in known:
            continue
        integers = known.get(node.input[0], quantized.get(node.input[0]))
        if integers is None:
            continue
        scale = known[node.input[1]].astype(np.float64)
        yield Weight(
            name=node.input[0],
            result=node.output[0],
            integers=integers,
            scale=scale,
            zero=_zero_point(node, known, np.zeros(scale.shape, integers.dtype)),
            axis=min(int(attribute(node, "axis", 1)), integers.ndim - 1),
        )


def _quantize_constant(node: onnx.NodeProto, known: Mapping[str, Array]) -> Array:
    """What a QuantizeLinear makes of a constant."""
    values = known[node.input[0]].astype(np.float64)
    scale = known[node.input[1]].astype(np.float64)
    zero = known[node.input[2]] if len(node.input) > 2 else np.zeros(scale.shape, np.uint8)
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[int(attribute(node, "axis", 1))] = scale.size
    low, high = INTEGER_LIMITS[str(zero.dtype)]
    offset = zero.astype(np.float64).reshape(shape)
    integers = np.rint(values / scale.reshape(shape)) + offset
    return np.clip(integers, low, high).astype(zero.dtype)


def find_folded_relus(model: onnx.ModelProto) -> set[str]:
    """Values whose rounding is their ReLU as well: zero is the lowest level, and a layer that can go below makes them."""
    producers = {name: node.op_type for node in model.graph.node for name in node.output}
    return {
        pair.value
        for pair in find_pairs(model)
        if producers.get(pair.value) in _SIGNED and bool((pair.limits[0] >= -1e-12).all())
    }
