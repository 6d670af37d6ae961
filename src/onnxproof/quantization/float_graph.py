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
    model = _simplified(path)
    if file.opset < _LEAST_OPSET:
        model = onnx.version_converter.convert_version(model, _LEAST_OPSET)
    del model.graph.value_info[:]  # an exporter's stale shapes make the quantizer fail
    model = onnx.shape_inference.infer_shapes(model)
    taken = {node.name for node in model.graph.node if node.name}
    for place, node in enumerate(model.graph.node):
        if not node.name:
            node.name = (
                f"{node.op_type}_{place}"
                if f"{node.op_type}_{place}" not in taken
                else f"{node.op_type}_{place}_{len(taken)}"
            )
    return model


def _simplified(path: Path) -> onnx.ModelProto:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with temporary.Folder() as folder:
        options.optimized_model_filepath = str(Path(folder) / "simple.onnx")
        try:
            ort.native(path, options)
            model = onnx.load(options.optimized_model_filepath, load_external_data=False)
            onnx.load_external_data_for_model(
                model, str(path.parent)
            )  # the runtime leaves untouched weights where the file had them
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


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy to change."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


class Index:
    """Who makes and who reads each value of a graph, and its weights."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.makers: dict[str, onnx.NodeProto] = {
            name: node for node in model.graph.node for name in node.output if name
        }
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self.readers[name].append(node)
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
        kinds = {
            v.name: v.type.tensor_type.elem_type
            for v in (
                *self.model.graph.input,
                *self.model.graph.value_info,
                *self.model.graph.output,
            )
        }
        names = [
            *(v.name for v in self.model.graph.input if v.name in self.inputs),
            *(name for node in self.model.graph.node for name in node.output if name),
        ]
        return [name for name in names if kinds.get(name) == onnx.TensorProto.FLOAT]

    def weight_of(self, node: onnx.NodeProto) -> str | None:
        """The name of a Conv's, MatMul's or Gemm's constant factor, or None where both factors vary."""
        if node.op_type not in WEIGHTED or len(node.input) < 2:
            return None
        return node.input[1] if node.input[1] in self.weights else None

    def channel_axis(self, name: str) -> int | None:
        """1 for what convolutions make or read, the last for matrix products; None where there are no channels."""
        around = [
            *self.readers.get(name, ()),
            *([self.makers[name]] if name in self.makers else []),
        ]
        kinds = {node.op_type for node in around}
        if kinds & {
            "Conv",
            "ConvTranspose",
            "MaxPool",
            "AveragePool",
            "GlobalAveragePool",
            "BatchNormalization",
        }:
            return 1
        if kinds & {"MatMul", "Gemm", "LayerNormalization"}:
            return -1
        upstream = self.makers.get(name)
        if (
            upstream is not None
            and upstream.op_type
            in ("Relu", "Clip", "LeakyRelu", "HardSwish", "Sigmoid", "Add", "Mul")
            and upstream.input
        ):
            return (
                self.channel_axis(upstream.input[0]) if upstream.input[0] in self.makers else None
            )
        return None


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """An attribute's value, or the default."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)
