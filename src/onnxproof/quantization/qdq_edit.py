"""The same Q/DQ graph with something undone or changed: without some roundings, with float weights, with other ranges."""

from collections.abc import Iterable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.qdq import (
    INTEGER_LIMITS,
    Pair,
    constants,
    find_folded_relus,
    find_pairs,
)

Array = np.ndarray[Any, Any]
_SMALLEST_SCALE = 1e-12
"""A range of no width gets this scale instead of zero."""


def remove_pairs(
    model: onnx.ModelProto, values: Iterable[str], relus: set[str] | None = None
) -> None:
    """Take the pairs behind these float values (or before these outputs) out, in place; a ReLU that was part of the rounding (`relus`, or by its looks) stays."""
    chosen = set(values)
    if not chosen:
        return
    if relus is None:
        relus = find_folded_relus(model)
    replacements: dict[str, str] = {}
    removed: set[str] = set()
    for pair in find_pairs(model):
        names = {pair.value, *pair.results}
        if not chosen & names:
            continue
        removed.add(pair.quantize)
        if relus & names:
            _make_relus(model, pair)
        else:
            replacements |= dict.fromkeys(pair.results, pair.value)
            removed.update(pair.results)
    _redirect_consumers(model, replacements, removed)


def _make_relus(model: onnx.ModelProto, pair: Pair) -> None:
    """Turn each DequantizeLinear of a pair into the ReLU that its rounding was."""
    for node in model.graph.node:
        if node.output[0] in pair.results:
            node.op_type, node.domain = "Relu", ""
            del node.attribute[:]
            del node.input[:]
            node.input.append(pair.value)


def _redirect_consumers(
    model: onnx.ModelProto, replacements: Mapping[str, str], removed: set[str]
) -> None:
    """Let consumers of some values read others, and take the Q/DQ nodes that produce what is removed out.

    1. A graph output keeps its name: the producer of its replacement takes the name over.
    2. The nodes that produce removed values go.
    3. Every other node reads the replacement, and the replacement of that, where there are several in a row.
    """
    outputs = {value.name for value in model.graph.output}
    replacements = dict(replacements)
    for result, value in list(replacements.items()):
        if result in outputs and not _rename_producer(model, value, result, replacements):
            removed.discard(result)
    kept = [node for node in model.graph.node if not _is_removed(node, removed)]
    for node in kept:
        for place, name in enumerate(node.input):
            node.input[place] = _final_name(name, replacements)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    del model.graph.value_info[:]


def _rename_producer(
    model: onnx.ModelProto, value: str, result: str, replacements: dict[str, str]
) -> bool:
    """Let the producer of `value` produce the graph output `result` instead; False where no node produces it."""
    producer = next((node for node in model.graph.node if value in node.output), None)
    if producer is None:
        return False
    siblings = [other for other, target in replacements.items() if target == value]
    replacements[value] = result
    replacements.update(dict.fromkeys(siblings, result))
    for place, name in enumerate(producer.output):
        if name == value:
            producer.output[place] = result
    del replacements[result]
    return True


def _is_removed(node: onnx.NodeProto, removed: set[str]) -> bool:
    return node.op_type in ("QuantizeLinear", "DequantizeLinear") and bool(
        set(node.output) & removed
    )


def _final_name(name: str, replacements: Mapping[str, str]) -> str:
    visited: set[str] = set()
    while name in replacements and name not in visited:
        visited.add(name)
        name = replacements[name]
    return name


def without_rounding(
    model: onnx.ModelProto, values: Iterable[str] | None = None, relus: set[str] | None = None
) -> onnx.ModelProto:
    """A copy whose activations (all, or these) stay float."""
    changed = copy_model(model)
    if values is None:
        values = [pair.value for pair in find_pairs(changed)]
    remove_pairs(changed, values, relus)
    return changed


def with_floats(model: onnx.ModelProto, floats: Mapping[str, Array]) -> onnx.ModelProto:
    """A copy in which the results of some weights' DequantizeLinear are given as floats."""
    changed = copy_model(model)
    nodes = [
        node
        for node in changed.graph.node
        if not (node.op_type == "DequantizeLinear" and node.output[0] in floats)
    ]
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    kept = [tensor for tensor in changed.graph.initializer if tensor.name not in floats]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(kept)
    for name, array in floats.items():
        add_initializer(changed, np.ascontiguousarray(array, np.float32), name)
    del changed.graph.value_info[:]
    return changed


def with_ranges(
    model: onnx.ModelProto,
    limits: Mapping[str, tuple[Array, Array]],
    *,
    dtype: str | None = None,
    axis: int | None = None,
) -> onnx.ModelProto:
    """A copy in which the pairs behind some values hold other ranges, by other types where `dtype` is given, for each channel where arrays are."""
    changed = copy_model(model)
    pairs = {pair.value: pair for pair in find_pairs(changed)}
    for value, (low, high) in limits.items():
        pair = pairs.get(value)
        if pair is None:
            continue
        scale, zero = scale_and_zero_point(
            np.asarray(low, np.float64), np.asarray(high, np.float64), dtype or pair.dtype
        )
        channel_axis = None
        if scale.size > 1:
            channel_axis = pair.axis if axis is None else axis
        _replace_parameters(changed, pair, scale, zero, channel_axis)
    requantize_biases(model, changed)
    if dtype is not None and "16" in dtype and _opset(changed) < 21:
        _import_contrib_operators(changed)
    del changed.graph.value_info[:]
    return changed


def _replace_parameters(
    model: onnx.ModelProto, pair: Pair, scale: Array, zero: Array, axis: int | None
) -> None:
    """Give the nodes of a pair another scale and zero point, under names that no initializer has yet."""
    prefix = f"{pair.quantize}_scale_mended"
    turn = sum(tensor.name.startswith(prefix) for tensor in model.graph.initializer)
    names = (f"{prefix}{turn}", f"{pair.quantize}_zero_mended{turn}")
    add_initializer(model, scale.astype(np.float32), names[0])
    add_initializer(model, zero, names[1])
    for node in model.graph.node:
        if not set(node.output) & {pair.quantize, *pair.results}:
            continue
        del node.input[1:]
        node.input.extend(names)
        for old in list(node.attribute):
            if old.name in ("axis", "output_dtype", "block_size"):
                node.attribute.remove(old)
        if axis is not None:
            node.attribute.append(onnx.helper.make_attribute("axis", axis))
        if "16" in str(zero.dtype):
            node.domain = "com.microsoft" if _opset(model) < 21 else ""


def _import_contrib_operators(model: onnx.ModelProto) -> None:
    """Before opset 21, 16-bit Q/DQ are contrib operators of ONNX Runtime."""
    if not any(entry.domain == "com.microsoft" for entry in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def requantize_biases(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Integer biases go by the scale of their layer's input times that of its weights: kernels rest on it, so they follow."""
    old, new = Index(before), Index(after)
    known, known_before = constants(after), constants(before)
    for node in after.graph.node:
        dequantize = _bias_dequantizer(node, new)
        if dequantize is None:
            continue
        scale = bias_scale_of(node, new, known)
        old_scale = known[dequantize.input[1]]
        if scale is None or scale.size != old_scale.size:
            continue
        scale = scale.reshape(old_scale.shape)
        integers_before = old.array(dequantize.input[0]).astype(np.float64)
        floats = integers_before * known_before[dequantize.input[1]].astype(np.float64)
        integers = np.clip(np.rint(floats / scale), -(2**31), 2**31 - 1).astype(np.int32)
        prefix = f"{node.output[0]}_bias_mended"
        turn = sum(name.startswith(prefix) for name in known)
        names = (f"{prefix}{turn}", f"{node.output[0]}_bias_scale_mended{turn}")
        add_initializer(after, integers, names[0])
        add_initializer(after, scale.astype(np.float32), names[1])
        dequantize.input[0], dequantize.input[1] = names


def layer_of_bias(index: Index, bias: str) -> onnx.NodeProto | None:
    """The layer that alone reads a bias; None where it is no layer's, or several read it."""
    layers = [node for node in index.consumers[bias] if _bias_dequantizer(node, index) is not None]
    if len(layers) != 1 or layers[0].input[2] != bias:
        return None
    return layers[0]


def _bias_dequantizer(node: onnx.NodeProto, index: Index) -> onnx.NodeProto | None:
    """The DequantizeLinear of a layer's int32 bias, or None where it has no such bias."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm") or len(node.input) <= 2:
        return None
    producer = index.producers.get(node.input[2])
    if producer is None or producer.op_type != "DequantizeLinear":
        return None
    integers = index.weights.get(producer.input[0])
    if integers is None or integers.data_type != onnx.TensorProto.INT32:
        return None
    return producer


def bias_scale_of(node: onnx.NodeProto, index: Index, known: Mapping[str, Array]) -> Array | None:
    """The scale of a layer's input times that of its weights; None where one of them is not quantized, or the input by channels."""
    data = index.producers.get(node.input[0])
    weight = index.producers.get(node.input[1])
    if data is None or weight is None:
        return None
    if {data.op_type, weight.op_type} != {"DequantizeLinear"} or known[data.input[1]].size > 1:
        return None
    return known[data.input[1]].astype(np.float64) * known[weight.input[1]].astype(np.float64)


def scale_and_zero_point(low: Array, high: Array, dtype: str) -> tuple[Array, Array]:
    """Scale and zero point of a range; symmetric where the range is and the type is signed."""
    least, most = INTEGER_LIMITS[dtype]
    low, high = np.minimum(low, 0.0), np.maximum(high, 0.0)
    scale = np.maximum((high - low) / (most - least), _SMALLEST_SCALE)
    zero = np.clip(np.rint(least - low / scale), least, most)
    if dtype.startswith("int") and bool(np.allclose(low, -high)):
        scale = np.maximum(high / most, _SMALLEST_SCALE)
        zero = np.zeros_like(zero)
    if "4" in dtype:  # numpy has no 4-bit types
        return scale, zero.astype(getattr(ml_dtypes, dtype))
    return scale, zero.astype(np.dtype(dtype))


def add_initializer(model: onnx.ModelProto, array: Array, name: str) -> None:
    """Add a constant under a name that the graph does not have."""
    model.graph.initializer.append(numpy_helper.from_array(array, name))


def free_name(model: onnx.ModelProto, name: str) -> str:
    """The name, with a number where an initializer of the graph has it: a file may have been mended before."""
    taken = {tensor.name for tensor in model.graph.initializer}
    free = name
    count = 1
    while free in taken:
        count += 1
        free = f"{name}_{count}"
    return free


def _opset(model: onnx.ModelProto) -> int:
    return next(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0
    )
