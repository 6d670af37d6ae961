"""Layers of a quantized file that were meant to run as integers and run in float all the same, why, and what would change that.

The runtime makes an integer kernel of DequantizeLinear, layer, QuantizeLinear. Whatever stands between them, or a type that it has no kernel for, leaves the
layer in float with the conversions around it, which costs more than float alone.
"""

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
ASYMMETRIC = "quantize activations asymmetrically (torch.per_tensor_affine, --scheme u8s8)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatLayer:
    """A layer whose inputs are integers by the graph, and whose kernel computes in float."""

    node: str
    reason: str
    symmetric: Pair | None = None
    """The rounding behind its activation, where that alone is in the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The layers of a file that run in float although they are quantized, and what asymmetric ranges were seen to change."""

    layers: tuple[FloatLayer, ...]
    integer: int
    """Layers that run as integers."""
    heavy: int
    """Layers that could."""
    asymmetric: onnx.ModelProto | None = None
    """The file with asymmetric ranges where symmetric ones stand in the way; None where none does."""
    integer_then: int = 0
    """Layers of that file that run as integers."""

    @property
    def what(self) -> str:
        """The layers by name, each with its reason."""
        names = "; ".join(f"`{layer.node}`: {layer.reason}" for layer in self.layers[:_MOST_NAMED])
        if len(self.layers) > _MOST_NAMED:
            names += f"; and {len(self.layers) - _MOST_NAMED} more"
        return f"{len(self.layers)} of {self.heavy} layers are quantized and run in float on ort: {names}"

    @property
    def tried(self) -> str:
        """What asymmetric ranges changed."""
        return f"{self.integer} of {self.heavy} layers run as integers before, {self.integer_then} after"

    @property
    def help(self) -> str:
        """What to do about it."""
        if self.asymmetric is None:
            return "quantize what stands there, too, or leave the layer float: conversions around a float kernel cost time"
        return f"{ASYMMETRIC} (tried: {self.tried})"


def add_finding(evidence: Evidence) -> Evidence:
    """The evidence with a finding where layers of a quantized file run in float on ONNX Runtime's CPU kernels."""
    fallback = find_served_fallback(evidence)
    if fallback is None:
        return evidence
    finding = Finding(code=FLOAT_KERNELS, what=fallback.what, help=fallback.help)
    proof = replace(evidence.proof, findings=(*evidence.proof.findings, finding))
    return replace(evidence, proof=proof)


def find_served_fallback(evidence: Evidence) -> Fallback | None:
    """The fallbacks of a quantized file that ONNX Runtime's CPU kernels serve; None where there are none, or the file is too large to look."""
    path = evidence.request.path
    served = any(backend in ("ort", "ort:all") for backend in evidence.request.backends)
    if not (served and evidence.file.quantized and path.stat().st_size < _LARGEST):
        return None
    try:
        return find_fallback(path)
    except (OnnxproofError, ValueError, KeyError):
        return None  # a file that can't be opened or read as pairs has other findings


def find_fallback(path: Path) -> Fallback | None:
    """Which layers run in float and why; asymmetric ranges are tried, and what the runtime makes of them is counted. None where all that was meant to be integer is."""
    model = in_pair_form(onnx.load(path))
    counts = count_kernels(path)
    layers = tuple(find_float_layers(model, counts))
    if not layers:
        return None
    integer, heavy = counts.heavy
    limits = {
        layer.symmetric.value: (np.zeros(()), layer.symmetric.limits[1].max())
        for layer in layers
        if layer.symmetric is not None
    }
    if not limits:
        return Fallback(layers=layers, integer=integer, heavy=heavy)
    asymmetric = with_ranges(model, limits, dtype="uint8")
    return Fallback(
        layers=layers,
        integer=integer,
        heavy=heavy,
        asymmetric=asymmetric,
        integer_then=count_kernels(asymmetric).heavy[0],
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
