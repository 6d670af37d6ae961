"""The part of a graph up to its first layer with weights, run alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.input_preparation import Port
from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import consumed_names
from onnxproof.runtimes import ort

_LAYERS = ("Conv", "Gemm", "MatMul", "ConvTranspose")
_LAYER_CALLS = ("conv", "mm", "linear", "batch_norm")
_TABLES = ("Gather",)
_TABLE_CALLS = ("embedding", "index", "gather")
_MOST_TARGETS = 3
"""Values of the module that the layer's may be. Not measured."""


class FirstLayer:
    """What the first layer with weights makes of an input: as far as that, a graph is affine in it, and its preparation can be computed."""

    def __init__(self, workbench: Workbench, port: Port) -> None:
        self._workbench = workbench
        self._port = port
        self._feeds = {
            info.onnx_name: np.asarray(workbench.scene.case.inputs[info.name])
            for info in workbench.scene.signature.inputs
            if info.onnx_name
        }
        self.slices: list[onnx.NodeProto] = []
        """The parts that are taken of the input on the way: crops."""
        self.resizes: list[onnx.NodeProto] = []
        self.normed = False
        """Whether there is a norm with weights on the way: what is wrong with it is affine, too."""
        self._value = self._follow()
        """The layer's output; empty where there is none."""
        self._session = self._open()

    def _follow(self) -> str:
        """The output of the first layer with weights that the input reaches, with the bias of a MatMul."""
        layers = _TABLES if self._port.kind == "text" else _LAYERS
        reached = {self._port.onnx_name}
        value: str = ""
        for node in self._workbench.model.graph.node:
            if reached.isdisjoint(node.input):
                continue
            is_bias = node.op_type == "Add" and value in node.input
            if value and not is_bias:
                break
            if node.op_type in layers:
                value = node.output[0]
                reached = {value}
            elif value:
                value = node.output[0]
                break
            else:
                self._record(node)
                reached |= set(node.output)
        return value

    def _record(self, node: onnx.NodeProto) -> None:
        """Keep what happens to the input on the way."""
        if node.op_type == "Slice":
            self.slices.append(node)
        if node.op_type == "Resize":
            self.resizes.append(node)
        if node.op_type == "BatchNormalization":
            self.normed = True

    def _open(self) -> Any:
        """A session of the graph as far as the layer; None where the runtime refuses it."""
        if not self._value:
            return None
        needed = {self._value}
        model = self._workbench.copy_model()
        nodes = list(model.graph.node)
        del model.graph.node[:], model.graph.output[:]
        for node in reversed(nodes):
            if not needed.isdisjoint(node.output):
                needed |= set(consumed_names(node))
                model.graph.node.insert(0, node)
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(self._value))
        self._feeds = {name: array for name, array in self._feeds.items() if name in needed}
        for unused in [info for info in model.graph.input if info.name not in needed]:
            model.graph.input.remove(unused)
        try:
            return ort.open_model(model, "disabled")
        except OnnxproofError:
            return None

    def __call__(self, array: Array) -> Array | None:
        """The layer's values for this input."""
        if self._session is None:
            return None
        try:
            outputs = self._session.run({**self._feeds, self._port.onnx_name: array})
        except OnnxproofError:
            return None
        if outputs[0] is None:
            return None
        values: Array = outputs[0].astype(np.float64)
        return values

    def targets(self, size: int) -> Iterator[Array]:
        """The module's own values that this may be: of its first layers with weights, or of the norm behind one, which may be folded in."""
        calls = _TABLE_CALLS if self._port.kind == "text" else _LAYER_CALLS
        entries = [
            entry
            for entry in self._workbench.located.traced_values
            if entry.sketch.count == size and any(word in entry.op for word in calls)
        ]
        for entry in entries[:_MOST_TARGETS]:
            value = self._workbench.located.fetch(entry.place)
            if value is not None:
                yield np.asarray(value, np.float64)
