"""Q/DQ insertion by ONNX Runtime's own quantizer, with our ranges, and with an error where an option would do nothing.

What the quantizer keeps to itself is checked afterwards: a node that was asked for and is still float is an error or a reason, never silence.
"""

import logging
from collections.abc import Mapping, Sequence
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
from onnxproof.quantization.float_graph import Index, copied

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
    """Values that are not rounded although their maker is quantized: the graph's answers, a residual stream."""
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
    """A quantized graph, and what the quantizer left in float although it was asked for."""

    model: onnx.ModelProto
    left: Mapping[str, str] = field(default_factory=dict)


def insert(model: onnx.ModelProto, ranges: Mapping[str, Range], plan: Plan) -> Inserted:
    """Quantize a prepared float graph by a plan."""
    index = Index(model)
    left = _check(index, plan)
    wanted = [name for name in plan.nodes if name not in left]
    if not wanted:
        raise UsageError(
            "nothing-to-quantize",
            "no node of this model can be quantized",
            notes=[f"{name}: {why}" for name, why in list(left.items())[:4]],
            help="int8 serves Conv, MatMul and Gemm; try `--scheme fp16` for other models",
        )
    work = copied(model)
    if "16" in plan.activations or plan.wide:
        work = _raised(work, 21)
    overrides: dict[str, Any] = {
        name: [{"reduce_range": True, **_axis(index, name, plan)}] for name in plan.reduced
    }
    overrides |= {name: [{"quant_type": QuantType.QUInt16}] for name in plan.wide if name in ranges}
    extra = {
        "ActivationSymmetric": plan.symmetric,
        "WeightSymmetric": True,
        "TensorQuantOverrides": overrides,
        "AddQDQPairToWeight": False,
    }
    data = {
        name: TensorData(lowest=np.float32(low), highest=np.float32(high))
        for name, (low, high) in ranges.items()
    }
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        quantizer = QDQQuantizer(
            work,
            plan.per_channel,
            False,
            _TYPES[plan.weights],
            _TYPES[plan.activations],
            data,
            wanted,
            [],
            sorted({node.op_type for node in index.model.graph.node if node.name in wanted}),
            extra,
        )
        made = quantizer.quantize_model()
        quantizer.model.topological_sort()
    finally:
        log.setLevel(level)
    _float(made, plan.float_outputs, index)
    return Inserted(model=made, left=left)


def choose(model: onnx.ModelProto, op_types: Sequence[str]) -> tuple[str, ...]:
    """The nodes of these types that have something to gain: a Conv with constant weights, what passes between quantized nodes."""
    index = Index(model)
    heavy = {
        node.name
        for node in model.graph.node
        if node.op_type in op_types and node.op_type in HEAVY and _weighted_or_product(index, node)
    }
    passing = {
        node.name
        for node in model.graph.node
        if node.op_type in op_types and node.op_type in PASSING and _between(index, node, heavy)
    }
    return tuple(node.name for node in model.graph.node if node.name in heavy | passing)


def _weighted_or_product(index: Index, node: onnx.NodeProto) -> bool:
    return index.weight_of(node) is not None or (
        node.op_type == "MatMul" and not any(name in index.weights for name in node.input)
    )


def _between(index: Index, node: onnx.NodeProto, heavy: set[str], depth: int = 6) -> bool:
    """True when what the node reads comes from a quantized node by way of nodes that pass it on."""
    for name in node.input:
        maker = index.makers.get(name)
        if maker is None:
            continue
        if maker.name in heavy or (
            depth and maker.op_type in PASSING and _between(index, maker, heavy, depth - 1)
        ):
            return True
    return False


def _check(index: Index, plan: Plan) -> dict[str, str]:
    """What can't be done is said before anything is done: names nobody has are errors."""
    names = {node.name: node for node in index.model.graph.node}
    unknown = [name for name in plan.nodes if name not in names]
    if unknown:
        raise UsageError(
            "unknown-node",
            f"the graph has no node `{unknown[0]}`",
            notes=[f"it has {', '.join(list(names)[:8])} ..."],
        )
    values = set(index.makers) | index.inputs | set(index.weights)
    stray = sorted((plan.float_outputs | plan.reduced | plan.wide) - values)
    if stray:
        raise UsageError(
            "unknown-value",
            f"the graph has no value `{stray[0]}`",
            help="options that do nothing are errors, not silence",
        )
    return {
        name: f"onnxruntime's quantizer knows no {names[name].op_type}"
        for name in plan.nodes
        if names[name].op_type not in QDQRegistry
    }


def _axis(index: Index, weight: str, plan: Plan) -> dict[str, Any]:
    if not plan.per_channel:
        return {}
    node = index.readers[weight][0]
    transposed = node.op_type == "Gemm" and any(a.name == "transB" and a.i for a in node.attribute)
    return {"axis": 0 if node.op_type == "Conv" or transposed else 1}


def _raised(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """16-bit Q/DQ is standard from opset 21 on."""
    found = next(entry for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if found.version >= opset:
        return model
    raised = onnx.version_converter.convert_version(model, opset)
    del raised.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(raised)


def _float(model: onnx.ModelProto, values: frozenset[str], plain: Index) -> None:
    """Take the Q/DQ pair behind these values out; where the quantizer made a ReLU part of it, the ReLU stays, and where a Clip, the pair."""
    from onnxproof.quantization.qdq import bypass, pairs

    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    makers |= {
        result: makers[pair.value]
        for pair in pairs(model)
        for result in pair.results
        if pair.value in makers
    }  # a graph output is made behind its pair
    folded = {
        name: plain.makers[name].op_type
        for name in values
        if name in plain.makers and plain.makers[name].op_type != makers.get(name)
    }
    bypass(
        model,
        {name for name in values if folded.get(name, "Relu") == "Relu"},
        {name for name, kind in folded.items() if kind == "Relu"},
    )
