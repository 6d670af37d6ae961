"""Sums that don't fit: CPUs without VNNI add pairs of 8-bit products in 16 bits, and integer biases end at 2**31.

Seven-bit weights (`reduce_range`) make the first impossible; the recipe applies them only where the data says that it happens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.float_graph import Index, copy_model
from onnxproof.quantization.layer_matrices import input_rows, weight_matrix
from onnxproof.quantization.qdq_edit import requantize_biases
from onnxproof.quantization.weight_matching import is_saturated
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
_LAYERS = ("Conv", "MatMul", "Gemm")
_ROWS = 512
"""Rows of a layer's input that are multiplied: a share of output elements needs no more (not measured)."""
_INT16_MAX = 2**15 - 1


def has_vnni() -> bool:
    """True when this CPU multiplies and adds 8-bit numbers in 32 bits; a CPU that can't be asked is taken to do so."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return "vnni" in flags or "flags" not in flags


@dataclass(frozen=True, slots=True, kw_only=True)
class _IntegerLayer:
    """A layer with the names of its integer input and its int8 weight."""

    node: onnx.NodeProto
    integers: str
    weight: str


def measure_saturation(model: onnx.ModelProto, samples: Sequence[Batch]) -> dict[str, float]:
    """For each layer of unsigned activations and signed weights, the share of output elements that a saturating pair touches."""
    index = Index(model)
    layers = _integer_layers(index)
    if not layers:
        return {}
    watched = copy_model(model)
    names = list(dict.fromkeys(layer.integers for layer in layers))
    add_outputs(watched, names)
    session = ort.open_model(watched, "disabled", outputs=names)
    values = dict(zip(names, session.run(samples[0][1]), strict=True))
    shares = {}
    for layer in layers:
        integers = values[layer.integers]
        if integers is None or integers.dtype != np.uint8:
            continue
        rows = input_rows(layer.node, integers.astype(np.float64), model)
        if rows is None:
            continue
        weight, _ = weight_matrix(layer.node, index.array(layer.weight).astype(np.float64))
        share = _saturated_share(rows[:: max(1, len(rows) // _ROWS)], weight)
        if share > 0:
            shares[layer.node.name] = share
    return shares


def _integer_layers(index: Index) -> list[_IntegerLayer]:
    layers = []
    for node in index.model.graph.node:
        if node.op_type not in _LAYERS or len(node.input) < 2:
            continue
        data = index.producers.get(node.input[0])
        weight = index.producers.get(node.input[1])
        if data is None or weight is None:
            continue
        if not data.op_type == weight.op_type == "DequantizeLinear":
            continue
        tensor = index.weights.get(weight.input[0])
        if tensor is not None and tensor.data_type == onnx.TensorProto.INT8:
            layers.append(_IntegerLayer(node=node, integers=data.input[0], weight=weight.input[0]))
    return layers


def _saturated_share(rows: Array, weights: Array) -> float:
    """The share of output elements for which two neighbouring products, as vpmaddubsw adds them, leave 16 bits."""
    even = rows.shape[1] // 2 * 2
    first = rows[:, None, 0:even:2] * weights[None, :, 0:even:2]
    second = rows[:, None, 1:even:2] * weights[None, :, 1:even:2]
    return float((np.abs(first + second) > _INT16_MAX).any(-1).mean())


def reduce_weight_range(
    model: onnx.ModelProto, layers: Sequence[str] | None = None
) -> onnx.ModelProto:
    """A copy whose int8 weights (of all layers, or of these) keep to seven bits."""
    changed = copy_model(model)
    index = Index(changed)
    for node in changed.graph.node:
        if layers is not None and node.name not in layers:
            continue
        dequantize = _weight_dequantizer(index, node)
        if dequantize is None:
            continue
        integers = index.array(dequantize.input[0])
        if integers.dtype != np.int8 or np.abs(integers.astype(np.int16)).max(initial=0) <= 64:
            continue
        halved = np.clip(np.rint(integers.astype(np.float64) / 2), -64, 63)
        index.store(dequantize.input[0], halved.astype(np.int8))
        scale = (index.array(dequantize.input[1]) * 2).astype(np.float32)
        name = f"{dequantize.input[1]}_reduced_{node.output[0]}"
        changed.graph.initializer.append(numpy_helper.from_array(scale, name))
        dequantize.input[1] = name
    requantize_biases(model, changed)
    return changed


def _weight_dequantizer(index: Index, node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The DequantizeLinear of a layer's constant weight."""
    if node.op_type not in _LAYERS or len(node.input) <= 1:
        return None
    producer = index.producers.get(node.input[1])
    if producer is None or producer.op_type != "DequantizeLinear":
        return None
    if producer.input[0] not in index.weights:
        return None
    return producer


def find_saturated_biases(model: onnx.ModelProto) -> list[str]:
    """Integer biases that ran into the end of their type."""
    index = Index(model)
    saturated = []
    for node in model.graph.node:
        if node.op_type != "DequantizeLinear" or node.input[0] not in index.weights:
            continue
        is_bias = index.weights[node.input[0]].data_type == onnx.TensorProto.INT32
        if is_bias and is_saturated(index.array(node.input[0])).any():
            saturated.append(node.output[0])
    return saturated
