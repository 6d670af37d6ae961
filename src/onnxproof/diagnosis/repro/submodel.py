"""Sub-models: nodes of the main graph with the values that they read, and what a runtime computes from them."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError, Refused
from onnxproof.numerics.relative_error import relative_error
from onnxproof.onnxmodel import large_models, mapped_weights
from onnxproof.onnxmodel.graph import Graph, consumed_names
from onnxproof.runtimes import ort
from onnxproof.runtimes.session.execution import feed

Array = np.ndarray[Any, Any]
_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomUniform",
        "RandomNormalLike",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class SubModel:
    """Nodes of the main graph as a model of its own."""

    places: list[int]
    inputs: dict[str, Array]
    outputs: list[str]
    model: onnx.ModelProto


@dataclass(
    frozen=True,
    slots=True,
    kw_only=True,
)
class Repro:
    """A sub-model that shows the fault."""

    submodel: SubModel
    level: str
    """The optimisation level at which it does."""
    truth: dict[str, Array]
    answers: dict[str, Array]
    limits: dict[str, float]
    """The relative error from which on an output counts as wrong: between rounding and the fault."""
    refusal: str = ""
    """The runtime's message, where it refuses."""


def error_of(answer: Array | None, truth: Array) -> float:
    """How wrong a value is: relative for floats, the root of the share that differs for integers, 1 for another dtype."""
    if answer is None or answer.shape != truth.shape:
        return float("inf")
    if answer.dtype != truth.dtype:
        return 1.0
    if not is_integer(answer):
        return relative_error(answer, truth)
    if not answer.size:
        return 0.0
    share = float((answer != truth).mean())
    return math.sqrt(share)


def is_integer(array: Array) -> bool:
    """Integers and booleans, which must be equal."""
    return bool(array.dtype.kind in "iub")


class InnerValues:
    """Inner values of the model on the witness, and sub-models of its nodes."""

    def __init__(
        self,
        scene: Scene,
        graph: Graph,
        *,
        readable: bool = True,
    ) -> None:
        self._scene = scene
        self._graph = graph
        self._readable = readable
        self._feeds = feed(scene.case.inputs, scene.signature)
        self._known: dict[str, Array] = dict(self._feeds)
        weights = scene.file.model.graph.initializer
        if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in weights):
            weights = mapped_weights.load(scene.path).graph.initializer
        self._weights = {tensor.name: tensor for tensor in weights}
        self._constant_nodes = set(self._find_constant_nodes())

    def is_constant(self, place: int) -> bool:
        """Whether a node computes the same for every input."""
        return place in self._constant_nodes

    def _find_constant_nodes(self) -> Iterator[int]:
        """The nodes that read weights and constants alone."""
        known = set(self._weights)
        for place, node in enumerate(self._graph.nodes):
            if node.op_type in _RANDOM:
                continue
            if known.issuperset(consumed_names(node)):
                known.update(node.output)
                yield place

    def get(self, names: Iterable[str]) -> dict[str, Array]:
        """Values read without optimisation, from a model that computes nothing else; those that can't be read are left out."""
        names = list(names)
        unknown = [n for n in dict.fromkeys(names) if n and n not in self._known]
        if unknown:
            self._known.update(self._compute(unknown))
        return {name: self._known[name] for name in names if name in self._known}

    def _compute(self, names: list[str]) -> dict[str, Array]:
        """Run the part of the model that computes these values."""
        places = self.needed(range(len(self._graph.nodes)), names)
        model = self._assemble(places, self._feeds, names, {})
        inputs = {port.name: plain(self._feeds[port.name]) for port in model.graph.input}
        outputs = open_model(model, "disabled").run(inputs)
        return {
            name: value
            for name, value in zip(names, outputs, strict=True)
            if isinstance(value, np.ndarray) and value.dtype.kind != "O"
        }

    def needed(self, places: Iterable[int], outputs: Sequence[str]) -> list[int]:
        """Of these nodes those that the outputs depend on."""
        wanted = set(outputs)
        kept = []
        for place in sorted(places, reverse=True):
            node = self._graph.nodes[place]
            if wanted.intersection(node.output):
                kept.append(place)
                wanted.update(consumed_names(node))
        return kept[::-1]

    def cut(self, places: Sequence[int], outputs: Sequence[str] | None = None) -> SubModel:
        """The sub-model of these nodes: constants come along, everything else that they read becomes an input."""
        computed = dict.fromkeys(
            name for place in places for name in self._graph.nodes[place].output if name
        )
        consumed = [name for p in places for name in consumed_names(self._graph.nodes[p])]
        read = [name for name in dict.fromkeys(consumed) if name not in computed]
        constants = self._constant_producers(read)
        inputs = self._read_inputs(read, constants)
        if outputs is None:
            outputs = self._leaving(places, computed)
        dtypes = self.get(outputs) if self._readable else {}
        return SubModel(
            places=list(places),
            inputs={name: plain(array) for name, array in inputs.items()},
            outputs=list(outputs),
            model=self._assemble(sorted({*places, *constants}), inputs, outputs, dtypes),
        )

    def _read_inputs(self, names: Sequence[str], constants: Sequence[int]) -> dict[str, Array]:
        """The values of those names that are neither weights nor constants; each must be a tensor."""
        fixed = {name for place in constants for name in self._graph.nodes[place].output}
        fixed.update(self._weights)
        inputs = [name for name in names if name not in fixed]
        values = self.get(inputs)
        for name in inputs:
            if name not in values:
                raise OnnxproofError(
                    "not-a-tensor",
                    f"`{name}` is no tensor (a sequence or an optional), so it can't be an input of a sub-model",
                )
        return values

    def _leaving(self, places: Sequence[int], computed: Iterable[str]) -> list[str]:
        """What others read; a value that nobody reads stays inside, since reading it can make a fault of an optimizer vanish."""
        outputs = {port.name for port in self._scene.file.outputs}
        inside = set(places)
        names = list(computed)
        leaving = [
            name
            for name in names
            if name in outputs or not inside.issuperset(self._graph.consumers(name))
        ]
        return leaving or names

    def _constant_producers(self, names: Iterable[str]) -> list[int]:
        """The nodes that compute constants from constants."""
        producers: list[int] = []
        for name in names:
            place = self._graph.producers.get(name)
            if place is None or place in producers or not self.is_constant(place):
                continue
            producers += self._constant_producers(consumed_names(self._graph.nodes[place]))
            producers.append(place)
        return list(dict.fromkeys(producers))

    def _assemble(
        self,
        places: Sequence[int],
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        known_outputs: Mapping[str, Array],
    ) -> onnx.ModelProto:
        """A model of these nodes; the outputs get the dtypes of those that are known."""
        source = self._scene.file.model
        nodes = [_copy(self._graph.nodes[place]) for place in places]
        read = {name for node in nodes for name in consumed_names(node)} | set(outputs)
        graph = onnx.GraphProto(name=f"{source.graph.name or 'model'}_cut", node=nodes)
        graph.initializer.extend(t for name, t in self._weights.items() if name in read)
        graph.input.extend(
            helper.make_tensor_value_info(name, _elem_type(array), array.shape)
            for name, array in inputs.items()
            if name in read
        )
        graph.output.extend(_output_port(name, known_outputs.get(name)) for name in outputs)
        _add_casts(graph, _bfloat16_names(inputs), _bfloat16_names(known_outputs))
        return onnx.ModelProto(
            ir_version=source.ir_version,
            opset_import=source.opset_import,
            functions=source.functions,
            producer_name="onnxproof",
            graph=graph,
        )


def run(submodel: SubModel, level: str) -> tuple[dict[str, Array], str]:
    """The outputs of a sub-model at a level, or the message with which the runtime refuses it."""
    session = open_model(submodel.model, level)
    inputs = {name: a for name, a in submodel.inputs.items() if name in session.input_names}
    try:
        outputs = session.run(inputs)
    except Refused as why:
        return {}, why.what
    answers = zip(session.output_names, outputs, strict=True)
    return {name: value for name, value in answers if value is not None}, ""


def open_model(model: onnx.ModelProto, level: str) -> ort.OrtSession:
    """A session on the model."""
    return ort.open_model(model, level)


def save(model: onnx.ModelProto, path: Path) -> None:
    """In one file, unless it is too large for that; weights that stay in the candidate's file are copied."""
    large_models.save(mapped_weights.with_weights_inside(model, large_models.MOST_INLINE), path)


def plain(array: Array) -> Array:
    """numpy has no bfloat16: it goes in and out as float32."""
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise OnnxproofError(
            "not-a-tensor", f"values of type {array.dtype} can't be kept in a safetensors file"
        )
    return array


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    """A copy that may be renamed."""
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied


def _elem_type(array: Array) -> int:
    """The ONNX type of an array, bfloat16 as float32."""
    return helper.np_dtype_to_tensor_dtype(plain(array).dtype)


def _output_port(name: str, known: Array | None) -> onnx.ValueInfoProto:
    """An output, with its type where it is known."""
    if known is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, _elem_type(known), [None] * known.ndim)


def _bfloat16_names(arrays: Mapping[str, Array]) -> list[str]:
    """The names of the arrays in bfloat16."""
    return [name for name, array in arrays.items() if array.dtype == ml_dtypes.bfloat16]


def _add_casts(
    graph: onnx.GraphProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> None:
    """Casts at the border, so that bfloat16 values come in and go out as float32 under their own names."""
    for name in inputs:
        inner = f"{name}_bfloat16"
        _rename_value(graph.node, name, inner, outputs=False)
        graph.node.insert(
            0, helper.make_node("Cast", [name], [inner], to=onnx.TensorProto.BFLOAT16)
        )
    for name in outputs:
        inner = f"{name}_bfloat16"
        _rename_value(graph.node, name, inner, outputs=True)
        graph.node.append(helper.make_node("Cast", [inner], [name], to=onnx.TensorProto.FLOAT))


def _rename_value(
    nodes: Iterable[onnx.NodeProto],
    old: str,
    new: str,
    *,
    outputs: bool,
) -> None:
    """Rename a value in nodes and their subgraphs."""
    for node in nodes:
        _rename_item(node.input, old, new)
        if outputs:
            _rename_item(node.output, old, new)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename_value(inner.node, old, new, outputs=outputs)


def _rename_item(
    names: Any,
    old: str,
    new: str,
) -> None:
    """Rename a value in one list of names."""
    for place, name in enumerate(names):
        if name == old:
            names[place] = new
