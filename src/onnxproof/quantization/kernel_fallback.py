"""Layers of a quantized file that were meant to run as integers and run in float all the same, why, and what would change that.

The runtime makes an integer kernel of DequantizeLinear, layer, QuantizeLinear. Whatever stands between them, or a type that it has no kernel for, leaves the
layer in float with the conversions around it, which costs more than float alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.float_graph import WEIGHTED, Index
from onnxproof.quantization.kernel_report import KernelCounts, count_kernels
from onnxproof.quantization.pair_form import in_pair_form
from onnxproof.quantization.qdq import INTEGER_LIMITS, Pair, find_pairs
from onnxproof.quantization.qdq_edit import with_ranges
from onnxproof.results import Finding
from onnxproof.verification.evidence import Evidence

_ABSORBED = ("Relu", "Clip")
"""Activations that are part of a rounding whose lowest level is their own lowest value."""
_LARGEST = 1 << 30
"""Bytes of a file that is still looked into: the runtime writes its optimised graph for it. Not measured."""
_MOST_NAMED = 3
FLOAT_KERNELS = "float-kernels"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLayer:
    """A layer whose inputs are integers by the graph, and whose kernel computes in float."""

    node: str
    reason: str
    symmetric: Pair | None = None
    """The rounding behind its activation, where that alone is in the way."""


def add_finding(evidence: Evidence) -> Evidence:
    """The evidence with a finding where layers of a quantized file run in float on ONNX Runtime's CPU kernels."""
    path = evidence.request.path
    served = any(backend in ("ort", "ort:all") for backend in evidence.request.backends)
    if not (served and evidence.file.quantized and path.stat().st_size < _LARGEST):
        return evidence
    try:
        found = describe_fallbacks(path)
    except (OnnxproofError, ValueError, KeyError):
        return evidence  # a file that can't be opened or read as pairs has other findings
    if found is None:
        return evidence
    proof = replace(evidence.proof, findings=(*evidence.proof.findings, found))
    return replace(evidence, proof=proof)


def describe_fallbacks(path: Path) -> Finding | None:
    """Which layers run in float and why, with what was tried against it; None where all that was meant to be integer is."""
    model = in_pair_form(onnx.load(path))
    counts = count_kernels(path)
    layers = find_float_layers(model, counts)
    if not layers:
        return None
    integer, heavy = counts.heavy
    names = "; ".join(f"`{layer.node}`: {layer.reason}" for layer in layers[:_MOST_NAMED])
    if len(layers) > _MOST_NAMED:
        names += f"; and {len(layers) - _MOST_NAMED} more"
    return Finding(
        code=FLOAT_KERNELS,
        what=f"{len(layers)} of {heavy} layers are quantized and run in float on ort: {names}",
        help=_remedy(model, layers, integer, heavy),
    )


def find_float_layers(model: onnx.ModelProto, counts: KernelCounts) -> list[FloatLayer]:
    """The layers of a graph in pair form that read integers only, and whose kernel is a float one by what the runtime made of the file."""
    index = Index(model)
    pairs = {pair.value: pair for pair in find_pairs(model)}
    return [
        _examine(index, pairs, node)
        for node in model.graph.node
        if _reads_integers(index, node) and _runs_in_float(index, node, counts.float_outputs)
    ]


def _reads_integers(index: Index, node: onnx.NodeProto) -> bool:
    if node.op_type not in WEIGHTED:
        return False
    producers = [index.producers.get(name) for name in node.input[:2]]
    return all(one is not None and one.op_type == "DequantizeLinear" for one in producers)


def _runs_in_float(index: Index, node: onnx.NodeProto, float_outputs: frozenset[str]) -> bool:
    """By what the float kernels give: the layer's value, or that of the activation which became part of it."""
    value = node.output[0]
    behind = [name for reader in index.consumers[value] for name in reader.output]
    return value in float_outputs or not float_outputs.isdisjoint(behind)


def _examine(index: Index, pairs: dict[str, Pair], node: onnx.NodeProto) -> FloatLayer:
    """Why this one runs in float, as far as the graph shows it."""
    name = node.name or node.output[0]
    value = node.output[0]
    if "16" in _input_type(index, node):
        return FloatLayer(node=name, reason="there is no integer kernel for 16-bit activations")
    if value in pairs:
        return FloatLayer(node=name, reason="the runtime has no integer kernel for it")
    readers = index.consumers[value]
    if len(readers) != 1 or value in index.outputs:
        return FloatLayer(node=name, reason="what it gives is not rounded")
    activation = readers[0]
    pair = pairs.get(activation.output[0])
    if pair is None:
        reason = f"`{activation.op_type}` reads it before anything is rounded"
        return FloatLayer(node=name, reason=reason)
    lowest, _ = INTEGER_LIMITS[pair.dtype]
    if activation.op_type not in _ABSORBED or bool((pair.zero == lowest).all()):
        reason = f"`{activation.op_type}` stands between it and its rounding"
        return FloatLayer(node=name, reason=reason)
    zero = int(pair.zero.reshape(-1)[0])
    reason = f"its {activation.op_type} can't be part of the rounding, whose zero point is {zero} and not {lowest} (symmetric)"
    return FloatLayer(node=name, reason=reason, symmetric=pair)


def _input_type(index: Index, node: onnx.NodeProto) -> str:
    """The integer type of a layer's input."""
    dequantize = index.producers[node.input[0]]
    pairs = {result: pair for pair in find_pairs(index.model) for result in pair.results}
    pair = pairs.get(dequantize.output[0])
    if pair is None:
        return ""
    return pair.dtype


def _remedy(model: onnx.ModelProto, layers: Sequence[FloatLayer], integer: int, heavy: int) -> str:
    """What to do; asymmetric ranges are tried, and what the runtime makes of them is counted."""
    limits = {
        layer.symmetric.value: (np.zeros(()), layer.symmetric.limits[1].max())
        for layer in layers
        if layer.symmetric is not None
    }
    if not limits:
        return "quantize what stands there, too, or leave the layer float: conversions around a float kernel cost time"
    changed = count_kernels(with_ranges(model, limits, dtype="uint8")).heavy[0]
    tried = f"tried: {integer} of {heavy} layers run as integers before, {changed} after"
    return f"quantize activations asymmetrically (torch.per_tensor_affine, --scheme u8s8) ({tried})"
