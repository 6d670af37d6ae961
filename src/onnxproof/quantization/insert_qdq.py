"""Q/DQ insertion by ONNX Runtime's own quantizer, with our ranges, and with an error where an option would do nothing.

What the quantizer passes over without a word is checked before: a node of the plan that it does not know is given with the reason.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import QuantType
from onnxruntime.quantization.calibrate import TensorData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.registry import QDQRegistry

from onnxproof.errors import UsageError
from onnxproof.quantization.calibration.ranges import Range
from onnxproof.quantization.float_graph import Index, attribute, copy_model
from onnxproof.quantization.qdq import find_pairs
from onnxproof.quantization.qdq_edit import remove_pairs

_TYPES = {
    "uint8": QuantType.QUInt8,
    "int8": QuantType.QInt8,
    "uint16": QuantType.QUInt16,
    "int16": QuantType.QInt16,
}
LEVELS = {"uint8": 256, "int8": 256, "uint16": 65536, "int16": 65536}
HEAVY = ("Conv", "ConvTranspose", "MatMul", "Gemm")
"""Operators whose integer kernels pay for themselves."""
PASSING = (
    "Relu",
    "Clip",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Reshape",
    "Flatten",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Concat",
    "Add",
    "Mul",
    "Resize",
    "Pad",
    "Split",
    "Slice",
    "Gather",
    "LeakyRelu",
    "Sigmoid",
)
"""Operators between those that can stay in integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a graph is quantized: types, which nodes, and what is treated otherwise."""

    activations: str = "uint8"
    weights: str = "int8"
    symmetric: bool = False
    """Activations around zero: 8-bit signed kernels want it."""
    per_channel: bool = True
    nodes: tuple[str, ...] = ()
    """The nodes to quantize."""
    float_outputs: frozenset[str] = frozenset()
    """Values that are not rounded although their producer is quantized: the graph's outputs, a residual stream."""
    reduced: frozenset[str] = frozenset()
    """Weights kept to seven bits, since their products would saturate on CPUs without VNNI."""
    wide: frozenset[str] = frozenset()
    """Values kept in 16 bits."""
    calibrator: str = "mse"

    @property
    def levels(self) -> int:
        """Levels of an activation."""
        return LEVELS[self.activations]

    def with_(self, **changes: Any) -> "Plan":
        """The same plan with changes."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inserted:
    """A quantized graph, and what the quantizer left in float although the plan has it."""

    model: onnx.ModelProto
    left: Mapping[str, str] = field(default_factory=dict)


def insert(model: onnx.ModelProto, ranges: Mapping[str, Range], plan: Plan) -> Inserted:
    """Quantize a prepared float graph by a plan."""
    index = Index(model)
    left = _check(index, plan)
    nodes = [name for name in plan.nodes if name not in left]
    if not nodes:
        raise UsageError(
            "nothing-to-quantize",
            "no node of this model can be quantized",
            notes=[f"{name}: {why}" for name, why in list(left.items())[:4]],
            help="int8 serves Conv, MatMul and Gemm; try `--scheme fp16` for other models",
        )
    work = copy_model(model)
    if "16" in plan.activations or plan.wide:
        work = _raise_opset(work, 21)
    quantized = _run_quantizer(work, index, nodes, ranges, plan)
    _keep_float(quantized, plan.float_outputs, index)
    return Inserted(model=quantized, left=left)


def _run_quantizer(
    work: onnx.ModelProto,
    index: Index,
    nodes: list[str],
    ranges: Mapping[str, Range],
    plan: Plan,
) -> onnx.ModelProto:
    overrides: dict[str, Any] = {
        name: [{"reduce_range": True, **_weight_axis(index, name, plan)}] for name in plan.reduced
    }
    overrides |= {name: [{"quant_type": QuantType.QUInt16}] for name in plan.wide if name in ranges}
    extra_options = {
        "ActivationSymmetric": plan.symmetric,
        "WeightSymmetric": True,
        "TensorQuantOverrides": overrides,
        "AddQDQPairToWeight": False,
    }
    tensor_data = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high) in ranges.items()
    }
    op_types = sorted({node.op_type for node in index.model.graph.node if node.name in nodes})
    with quiet_logging():
        quantizer = QDQQuantizer(
            work,
            plan.per_channel,
            False,
            _TYPES[plan.weights],
            _TYPES[plan.activations],
            tensor_data,
            nodes,
            [],
            op_types,
            extra_options,
        )
        quantized: onnx.ModelProto = quantizer.quantize_model()
        quantizer.model.topological_sort()
    return quantized


@contextlib.contextmanager
def quiet_logging() -> Iterator[None]:
    """Only errors from ONNX Runtime's quantizers, which write to the root logger."""
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def choose(model: onnx.ModelProto, op_types: Sequence[str]) -> tuple[str, ...]:
    """The nodes of these types that have something to gain: a Conv with constant weights, what passes between quantized nodes."""
    index = Index(model)
    candidates = [node for node in model.graph.node if node.op_type in op_types]
    heavy = {node.name for node in candidates if node.op_type in HEAVY and _is_product(index, node)}
    passing = {
        node.name
        for node in candidates
        if node.op_type in PASSING and _is_fed_by(index, node, heavy)
    }
    return tuple(node.name for node in candidates if node.name in heavy | passing)


def _is_product(index: Index, node: onnx.NodeProto) -> bool:
    """A layer with a constant weight, or a product of two values that vary."""
    if index.weight_of(node) is not None:
        return True
    return node.op_type == "MatMul" and not any(name in index.weights for name in node.input)


def _is_fed_by(index: Index, node: onnx.NodeProto, heavy: set[str], depth: int = 6) -> bool:
    """True when what the node reads comes from a quantized node by way of nodes that pass it on."""
    producers = [index.producers[name] for name in node.input if name in index.producers]
    for producer in producers:
        if producer.name in heavy:
            return True
        if depth and producer.op_type in PASSING and _is_fed_by(index, producer, heavy, depth - 1):
            return True
    return False


def _check(index: Index, plan: Plan) -> dict[str, str]:
    """The nodes that the quantizer does not know, each with the reason; names that are not in the graph are errors."""
    nodes = {node.name: node for node in index.model.graph.node}
    unknown = [name for name in plan.nodes if name not in nodes]
    if unknown:
        raise UsageError(
            "unknown-node",
            f"the graph has no node `{unknown[0]}`",
            notes=[f"it has {', '.join(list(nodes)[:8])} ..."],
        )
    values = set(index.producers) | index.inputs | set(index.weights)
    stray = sorted((plan.float_outputs | plan.reduced | plan.wide) - values)
    if stray:
        raise UsageError(
            "unknown-value",
            f"the graph has no value `{stray[0]}`",
            help="options that do nothing are errors, not silence",
        )
    return {
        name: f"onnxruntime's quantizer knows no {nodes[name].op_type}"
        for name in plan.nodes
        if nodes[name].op_type not in QDQRegistry
    }


def _weight_axis(index: Index, weight: str, plan: Plan) -> dict[str, Any]:
    """The axis of a weight's output channels, as the quantizer's override takes it."""
    if not plan.per_channel:
        return {}
    node = index.consumers[weight][0]
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB", 0)):
        return {"axis": 0}
    return {"axis": 1}


def _raise_opset(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """16-bit Q/DQ is standard from opset 21 on."""
    current = next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if current.version >= opset:
        return model
    raised = onnx.version_converter.convert_version(model, opset)
    del raised.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(raised)


def _keep_float(model: onnx.ModelProto, values: frozenset[str], plain: Index) -> None:
    """Take the Q/DQ pair behind these values out; where the quantizer made a ReLU part of it, the ReLU stays, and where a Clip, the pair."""
    producers = {name: node.op_type for node in model.graph.node for name in node.output}
    behind_pairs: dict[str, str] = {}
    for pair in find_pairs(model):  # a graph output is produced behind its pair
        if pair.value in producers:
            behind_pairs |= dict.fromkeys(pair.results, producers[pair.value])
    producers |= behind_pairs
    removable = set()
    relus = set()
    for name in values:
        producer = plain.producers.get(name)
        if producer is None or producer.op_type == producers.get(name):
            removable.add(name)
        elif producer.op_type == "Relu":
            removable.add(name)
            relus.add(name)
    remove_pairs(model, removable, relus)
