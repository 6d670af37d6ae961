"""Any tool's Q/DQ graph, taken apart: which values are rounded how, and the same graph with some of it undone."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.float_graph import Index, attribute, copied

Array = np.ndarray[Any, Any]
_SIGNED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "BatchNormalization"})
_LIMITS = {
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
        low, high = _LIMITS[self.dtype]
        wide = self.zero.astype(np.float64)
        return (low - wide) * self.scale, (high - wide) * self.scale

    @property
    def symmetric(self) -> bool:
        """True when zero sits in the middle of the levels."""
        low, high = _LIMITS[self.dtype]
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
        shape = [1] * self.integers.ndim
        if self.scale.size > 1 and self.scale.ndim <= 1:
            shape[self.axis] = self.scale.size
        scale, zero = (
            (self.scale.reshape(shape), self.zero.reshape(shape))
            if self.scale.ndim <= 1
            else (self.scale, self.zero)
        )
        if (
            scale.size > 1 and scale.ndim == self.integers.ndim and scale.shape != tuple(shape)
        ):  # blocks
            repeats = self.integers.shape[self.axis] // scale.shape[self.axis]
            scale, zero = np.repeat(scale, repeats, self.axis), np.repeat(zero, repeats, self.axis)
        return np.asarray(
            (self.integers.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64)
        )


def constants(model: onnx.ModelProto) -> dict[str, Array]:
    """Initializers and Constant nodes by name."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if (
            node.op_type == "Constant"
            and node.attribute
            and node.attribute[0].type == onnx.AttributeProto.TENSOR
        ):
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif (
            node.op_type == "Constant"
            and node.attribute
            and node.attribute[0].name in ("value_float", "value_int")
        ):
            found[node.output[0]] = np.asarray(
                onnx.helper.get_attribute_value(node.attribute[0]),
                np.float32 if "float" in node.attribute[0].name else np.int64,
            )
    return found


def pairs(model: onnx.ModelProto) -> list[Pair]:
    """Every value that a Q/DQ pair with constant scale rounds, in graph order."""
    index, known = Index(model), constants(model)
    found = []
    for node in model.graph.node:
        if node.op_type != "QuantizeLinear" or node.input[0] in known or node.input[1] not in known:
            continue
        behind = [
            reader
            for reader in index.readers[node.output[0]]
            if reader.op_type == "DequantizeLinear"
        ]
        if not behind or len(behind) != len(index.readers[node.output[0]]):
            continue
        scale = known[node.input[1]].astype(np.float64)
        zero = (
            known[node.input[2]]
            if len(node.input) > 2 and node.input[2] in known
            else np.zeros(scale.shape, np.uint8)
        )
        found.append(
            Pair(
                value=node.input[0],
                quantize=node.output[0],
                results=tuple(r.output[0] for r in behind),
                scale=scale,
                zero=zero,
                axis=int(attribute(node, "axis", 1)),
                dtype=str(zero.dtype),
            )
        )
    return found


def weights(model: onnx.ModelProto) -> list[Weight]:
    """Every constant that is kept in at most 8 bits (int32 biases are not counted)."""
    return [weight for weight in _weights(model) if weight.integers.dtype != np.int32]


def biases(model: onnx.ModelProto) -> list[Weight]:
    """Every constant that is kept in 32 bits."""
    return [weight for weight in _weights(model) if weight.integers.dtype == np.int32]


def _weights(model: onnx.ModelProto) -> Iterator[Weight]:
    known = constants(model)
    quantized: dict[str, Array] = {}
    for node in model.graph.node:  # fake quantization of constants: Q and DQ, both kept
        if node.op_type == "QuantizeLinear" and node.input[0] in known and node.input[1] in known:
            quantized[node.output[0]] = _rounded(node, known)
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[1] not in known:
            continue
        integers = known.get(node.input[0], quantized.get(node.input[0]))
        if integers is None:
            continue
        scale = known[node.input[1]].astype(np.float64)
        zero = (
            known[node.input[2]]
            if len(node.input) > 2 and node.input[2] in known
            else np.zeros(scale.shape, integers.dtype)
        )
        axis = min(int(attribute(node, "axis", 1)), integers.ndim - 1)
        yield Weight(
            name=node.input[0],
            result=node.output[0],
            integers=integers,
            scale=scale,
            zero=zero,
            axis=axis,
        )


def _rounded(node: onnx.NodeProto, known: Mapping[str, Array]) -> Array:
    values, scale = known[node.input[0]].astype(np.float64), known[node.input[1]].astype(np.float64)
    zero = known[node.input[2]] if len(node.input) > 2 else np.zeros(scale.shape, np.uint8)
    shape = [1] * values.ndim
    if scale.size > 1:
        shape[int(attribute(node, "axis", 1))] = scale.size
    low, high = _LIMITS[str(zero.dtype)]
    wide = zero.astype(np.float64).reshape(shape)
    return np.clip(np.rint(values / scale.reshape(shape)) + wide, low, high).astype(zero.dtype)


def clips(model: onnx.ModelProto) -> set[str]:
    """Values whose rounding is their ReLU as well: zero is the lowest level, and a layer that can go below makes them."""
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    return {
        pair.value
        for pair in pairs(model)
        if makers.get(pair.value) in _SIGNED and bool((pair.limits[0] >= -1e-12).all())
    }


def bypass(model: onnx.ModelProto, values: Iterable[str], relus: set[str] | None = None) -> None:
    """Take the pairs behind these float values (or before these outputs) out, in place; a ReLU that was part of the rounding (`relus`, or by its looks) stays."""
    chosen = set(values)
    if not chosen:
        return
    relus = clips(model) if relus is None else relus
    moved: dict[str, str] = {}
    gone: set[str] = set()
    for pair in pairs(model):
        if not chosen & {pair.value, *pair.results}:
            continue
        if relus & {pair.value, *pair.results}:
            for node in [n for n in model.graph.node if n.output[0] in pair.results]:
                node.op_type, node.domain = "Relu", ""
                del node.attribute[:]
                del node.input[:]
                node.input.append(pair.value)
            gone.add(pair.quantize)
        else:
            moved |= dict.fromkeys(pair.results, pair.value)
            gone |= {pair.quantize, *pair.results}
    _reread(model, moved, gone)


def _reread(model: onnx.ModelProto, moved: Mapping[str, str], gone: set[str]) -> None:
    """Let readers of some values read others; nodes that made what is gone go. A graph output keeps its name."""
    outputs = {value.name for value in model.graph.output}
    moved = dict(moved)
    for result, value in list(moved.items()):
        if result in outputs:  # the maker takes the output's name over
            maker = next((n for n in model.graph.node if value in n.output), None)
            if maker is None:
                gone.discard(result)
                continue
            moved |= {value: result} | {r: result for r, v in moved.items() if v == value}
            for place, name in enumerate(maker.output):
                if name == value:
                    maker.output[place] = result
            del moved[result]
    kept = [
        node
        for node in model.graph.node
        if not (node.op_type in ("QuantizeLinear", "DequantizeLinear") and set(node.output) & gone)
    ]
    for node in kept:
        for place, name in enumerate(node.input):
            seen: set[str] = set()
            while name in moved and name not in seen:
                seen.add(name)
                name = moved[name]
            node.input[place] = name
    del model.graph.node[:]
    model.graph.node.extend(kept)
    del model.graph.value_info[:]


def without_rounding(
    model: onnx.ModelProto, values: Iterable[str] | None = None, relus: set[str] | None = None
) -> onnx.ModelProto:
    """A copy whose activations (all, or these) stay float."""
    made = copied(model)
    bypass(made, [pair.value for pair in pairs(made)] if values is None else values, relus)
    return made


def with_floats(model: onnx.ModelProto, floats: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy in which the results of some weights' DequantizeLinear are given as floats."""
    made = copied(model)
    nodes = [
        node
        for node in made.graph.node
        if not (node.op_type == "DequantizeLinear" and node.output[0] in floats)
    ]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    kept = [tensor for tensor in made.graph.initializer if tensor.name not in floats]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    for name, array in floats.items():
        made.graph.initializer.append(
            numpy_helper.from_array(np.ascontiguousarray(array, np.float32), name)
        )
    del made.graph.value_info[:]
    return made


def with_ranges(
    model: onnx.ModelProto,
    limits: Mapping[str, tuple[Array, Array]],
    *,
    dtype: str | None = None,
    axis: int | None = None,
) -> onnx.ModelProto:
    """A copy in which the pairs behind some values hold other ranges, by other types where `dtype` is given, for each channel where arrays are."""
    made = copied(model)
    known = {pair.value: pair for pair in pairs(made)}
    for value, (low, high) in limits.items():
        pair = known.get(value)
        if pair is None:
            continue
        kind = dtype or pair.dtype
        scale, zero = quantization(np.asarray(low, np.float64), np.asarray(high, np.float64), kind)
        turn = sum(
            tensor.name.startswith(f"{pair.quantize}_scale_mended")
            for tensor in made.graph.initializer
        )
        names = (f"{pair.quantize}_scale_mended{turn}", f"{pair.quantize}_zero_mended{turn}")
        made.graph.initializer.extend(
            [
                numpy_helper.from_array(scale.astype(np.float32), names[0]),
                numpy_helper.from_array(zero, names[1]),
            ]
        )
        for node in made.graph.node:
            if set(node.output) & {pair.quantize, *pair.results}:
                del node.input[1:]
                node.input.extend(names)
                for old in [
                    a for a in node.attribute if a.name in ("axis", "output_dtype", "block_size")
                ]:
                    node.attribute.remove(old)
                if scale.size > 1:
                    node.attribute.append(
                        onnx.helper.make_attribute("axis", pair.axis if axis is None else axis)
                    )
                if "16" in kind:
                    node.domain = "com.microsoft" if _opset(made) < 21 else ""
    _rebias(model, made)
    if (
        dtype is not None
        and "16" in dtype
        and _opset(made) < 21
        and not any(e.domain == "com.microsoft" for e in made.opset_import)
    ):
        made.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    del made.graph.value_info[:]
    return made


def _rebias(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Integer biases go by the scale of their layer's input times that of its weights: kernels rest on it, so they follow."""
    old, new, known = Index(before), Index(after), constants(after)
    for node in after.graph.node:
        made = (
            new.makers.get(node.input[2])
            if node.op_type in ("Conv", "ConvTranspose", "Gemm") and len(node.input) > 2
            else None
        )
        if (
            made is None
            or made.op_type != "DequantizeLinear"
            or made.input[0] not in new.weights
            or new.weights[made.input[0]].data_type != onnx.TensorProto.INT32
        ):
            continue
        x, w = new.makers.get(node.input[0]), new.makers.get(node.input[1])
        if (
            x is None
            or w is None
            or {x.op_type, w.op_type} != {"DequantizeLinear"}
            or known[x.input[1]].size > 1
        ):
            continue
        scale = known[x.input[1]].astype(np.float64) * known[w.input[1]].astype(np.float64)
        floats = old.array(made.input[0]).astype(np.float64) * constants(before)[
            made.input[1]
        ].astype(np.float64)
        if scale.size == known[made.input[1]].size:
            scale = scale.reshape(known[made.input[1]].shape)
            turn = sum(name.startswith(f"{node.output[0]}_bias_mended") for name in known)
            names = (
                f"{node.output[0]}_bias_mended{turn}",
                f"{node.output[0]}_bias_scale_mended{turn}",
            )
            integers = np.clip(np.rint(floats / scale), -(2**31), 2**31 - 1).astype(np.int32)
            after.graph.initializer.extend(
                [
                    numpy_helper.from_array(integers, names[0]),
                    numpy_helper.from_array(scale.astype(np.float32), names[1]),
                ]
            )
            made.input[0], made.input[1] = names


def quantization(low: Array, high: Array, dtype: str) -> tuple[Array, Array]:
    """Scale and zero point of a range; symmetric where the range is and the type is signed."""
    least, most = _LIMITS[dtype]
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = np.maximum((high - low) / (most - least), 1e-12)
    zero = np.clip(np.rint(least - low / scale), least, most)
    if dtype.startswith("int") and bool(np.allclose(low, -high)):
        scale, zero = np.maximum(high / most, 1e-12), np.zeros_like(zero)
    return scale, zero.astype(np.dtype(dtype) if "4" not in dtype else getattr(ml_dtypes, dtype))


def _opset(model: onnx.ModelProto) -> int:
    return next(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0
    )
