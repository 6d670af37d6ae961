"""The float graph that is to be quantized: simplified by the runtime itself, named throughout, with its types inferred."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from onnxproof.errors import ModelError, UsageError
from onnxproof.onnxmodel import onnx_file
from onnxproof.runtimes import ort
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_LEAST_OPSET = 13
"""Per-channel scales came with it."""
_LARGEST = (1 << 31) - (1 << 20)
"""Bytes of a graph: protobuf ends at 2 GB, and quantizing adds scales and zero points."""
_BY_CHANNEL = frozenset(
    {
        "Conv",
        "ConvTranspose",
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "BatchNormalization",
    }
)
"""Operators whose channels are the second axis."""
_ELEMENTWISE = ("Relu", "Clip", "LeakyRelu", "HardSwish", "Sigmoid", "Add", "Mul")
WEIGHTED = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def prepare(path: Path) -> onnx.ModelProto:
    """Read a float model: BatchNorms folded, constants evaluated, every node named, every value typed."""
    file = onnx_file.read(path)
    if file.quantized:
        raise UsageError(
            "already-quantized",
            f"`{path.name}` is quantized already",
            where=str(path),
            help="quantize the float model; `onnxproof verify` proves a quantized one and `onnxproof explain` says where its points went",
        )
    model = _simplify(path)
    if file.opset < _LEAST_OPSET:
        model = onnx.version_converter.convert_version(model, _LEAST_OPSET)
    del model.graph.value_info[:]  # an exporter's stale shapes make the quantizer fail
    model = onnx.shape_inference.infer_shapes(model)
    _name_nodes(model)
    return model


def _name_nodes(model: onnx.ModelProto) -> None:
    """Give every node without a name one that no other has."""
    taken = {node.name for node in model.graph.node if node.name}
    for place, node in enumerate(model.graph.node):
        if node.name:
            continue
        name = f"{node.op_type}_{place}"
        if name in taken:
            name = f"{name}_{len(taken)}"
        node.name = name


def _simplify(path: Path) -> onnx.ModelProto:
    """The graph after ONNX Runtime's basic optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with temporary.Folder() as folder:
        options.optimized_model_filepath = str(Path(folder) / "simple.onnx")
        try:
            ort.native(path, options)
            model = onnx.load(options.optimized_model_filepath, load_external_data=False)
            # the runtime leaves untouched weights where the file had them
            onnx.load_external_data_for_model(model, str(path.parent))
        except Exception as why:  # onnxruntime raises a dozen unrelated classes
            raise ModelError(
                "model-refused",
                "onnxruntime can't open this model",
                where=str(path),
                notes=[" ".join(str(why).split())[:300]],
            ) from why
    if model.ByteSize() >= _LARGEST:
        raise ModelError(
            "model-too-large",
            "models beyond 2 GB can't be quantized in memory yet",
            where=str(path),
        )
    return model


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy to change."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


class Index:
    """The producer and the consumers of each value of a graph, and its weights."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.producers: dict[str, onnx.NodeProto] = {
            name: node for node in model.graph.node for name in node.output if name
        }
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self.consumers[name].append(node)
        self.weights: dict[str, onnx.TensorProto] = {
            tensor.name: tensor for tensor in model.graph.initializer
        }
        self.outputs = {value.name for value in model.graph.output}
        self.inputs = {value.name for value in model.graph.input} - set(self.weights)

    def array(self, name: str) -> Array:
        """A weight's values."""
        return numpy_helper.to_array(self.weights[name])

    def store(self, name: str, array: Array) -> None:
        """Write a weight's values back."""
        self.weights[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))

    def float_values(self) -> list[str]:
        """Values between nodes that are float32, in graph order: what could be quantized."""
        graph = self.model.graph
        dtypes = {
            value.name: value.type.tensor_type.elem_type
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        names = [value.name for value in graph.input if value.name in self.inputs]
        for node in graph.node:
            names += [name for name in node.output if name]
        return [name for name in names if dtypes.get(name) == onnx.TensorProto.FLOAT]

    def weight_of(self, node: onnx.NodeProto) -> str | None:
        """The name of a Conv's, MatMul's or Gemm's constant factor, or None where both factors vary."""
        if node.op_type not in WEIGHTED or len(node.input) < 2:
            return None
        return node.input[1] if node.input[1] in self.weights else None

    def channel_axis(self, name: str) -> int | None:
        """1 for what convolutions make or read, the last for matrix products; None where there are no channels."""
        producer = self.producers.get(name)
        op_types = {node.op_type for node in self.consumers.get(name, ())}
        if producer is not None:
            op_types.add(producer.op_type)
        if op_types & _BY_CHANNEL:
            return 1
        if op_types & {"MatMul", "Gemm", "LayerNormalization"}:
            return -1
        if producer is None or producer.op_type not in _ELEMENTWISE or not producer.input:
            return None
        if producer.input[0] not in self.producers:
            return None
        return self.channel_axis(producer.input[0])


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    for candidate in node.attribute:
        if candidate.name == name:
            return onnx.helper.get_attribute_value(candidate)
    return default
