"""Sums that don't fit: CPUs without VNNI add pairs of 8-bit products in 16 bits, and integer biases end at 2**31.

Seven-bit weights (`reduce_range`) make the first impossible; it is asked for only where the data says that it happens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.float_graph import Index, copied
from onnxproof.quantization.qdq import _rebias
from onnxproof.quantization.recipes.learn_rounding import _matrix, _patches
from onnxproof.runtimes import ort
from onnxproof.runtimes.reference import add_outputs

Array = np.ndarray[Any, Any]
_ROWS = 512
_INT16 = 2**15 - 1


def has_vnni() -> bool:
    """True when this CPU multiplies and adds 8-bit numbers in 32 bits; what can't be asked is taken to do so."""
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return "vnni" in flags or "flags" not in flags


def saturated(model: onnx.ModelProto, samples: Sequence[Batch]) -> dict[str, float]:
    """For each layer of unsigned activations and signed weights, the share of output elements that a saturating pair touches."""
    index = Index(model)
    layers = []
    for node in model.graph.node:
        x, w = (index.makers.get(name) for name in [*node.input, "", ""][:2])
        if (
            node.op_type not in ("Conv", "MatMul", "Gemm")
            or x is None
            or w is None
            or not x.op_type == w.op_type == "DequantizeLinear"
        ):
            continue
        if (
            w.input[0] in index.weights
            and index.weights[w.input[0]].data_type == onnx.TensorProto.INT8
        ):
            layers.append((node, x.input[0], w.input[0]))
    if not layers:
        return {}
    watched = copied(model)
    names = list(dict.fromkeys(integers for _, integers, _ in layers))
    add_outputs(watched, names)
    values = dict(
        zip(
            names,
            ort.open(watched.SerializeToString(), "disabled", outputs=names).run(samples[0][1]),
            strict=True,
        )
    )
    found = {}
    for node, integers, weight in layers:
        array = values[integers]
        if array is None or array.dtype != np.uint8:
            continue
        rows = _patches(node, array.astype(np.float64), model)
        if rows is not None:
            found[node.name] = _touched(
                rows[:: max(1, len(rows) // _ROWS)],
                _matrix(node, index.array(weight).astype(np.float64))[0],
            )
    return {name: share for name, share in found.items() if share > 0}


def _touched(rows: Array, weights: Array) -> float:
    """Pairs of neighbours, as vpmaddubsw takes them."""
    even = rows.shape[1] // 2 * 2
    pairs = (
        rows[:, None, 0:even:2] * weights[None, :, 0:even:2]
        + rows[:, None, 1:even:2] * weights[None, :, 1:even:2]
    )
    return float((np.abs(pairs) > _INT16).any(-1).mean())


def reduced(model: onnx.ModelProto, layers: Sequence[str] | None = None) -> onnx.ModelProto:
    """A copy whose int8 weights (of all layers, or of these) keep to seven bits."""
    made = copied(model)
    index = Index(made)
    for node in made.graph.node:
        maker = (
            index.makers.get(node.input[1])
            if node.op_type in ("Conv", "MatMul", "Gemm") and len(node.input) > 1
            else None
        )
        if (
            maker is None
            or maker.op_type != "DequantizeLinear"
            or maker.input[0] not in index.weights
            or (layers is not None and node.name not in layers)
        ):
            continue
        integers = index.array(maker.input[0])
        if integers.dtype == np.int8 and np.abs(integers.astype(np.int16)).max(initial=0) > 64:
            index.store(
                maker.input[0],
                np.clip(np.rint(integers.astype(np.float64) / 2), -64, 63).astype(np.int8),
            )
            name = f"{maker.input[1]}_reduced_{node.output[0]}"
            made.graph.initializer.append(
                numpy_helper.from_array((index.array(maker.input[1]) * 2).astype(np.float32), name)
            )
            maker.input[1] = name
    _rebias(model, made)
    return made


def full_biases(model: onnx.ModelProto) -> list[str]:
    """Integer biases that ran into the end of their type."""
    index = Index(model)
    found = []
    for node in model.graph.node:
        if (
            node.op_type == "DequantizeLinear"
            and node.input[0] in index.weights
            and index.weights[node.input[0]].data_type == onnx.TensorProto.INT32
        ):
            wide = np.abs(index.array(node.input[0]).astype(np.int64))
            if wide.max(initial=0) >= 2**31 - 1:
                found.append(node.output[0])
    return found
