"""Sub-models: nodes of the main graph with the values that they are given, and what a runtime makes of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import external_data_helper, helper

from onnxproof.diagnosis.locate.match import relative
from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.errors import OnnxproofError, Refused
from onnxproof.onnxmodel.graph import Graph, captured
from onnxproof.runtimes import ort
from onnxproof.runtimes.session.execution import feed
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_LARGEST = 1 << 31
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


@dataclass(slots=True, kw_only=True)
class Cut:
    """A sub-model: nodes of the main graph, what they are given, and which of their values are looked at."""

    places: list[int]
    given: dict[str, Array]
    outputs: list[str]
    model: onnx.ModelProto
    truth: dict[str, Array] = field(default_factory=dict)
    found: dict[str, Array] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)
    """The relative error from which on an output counts as wrong: between rounding and the fault."""
    level: str = ""
    words: str = ""
    """What the runtime says, where it refuses."""


def error(found: Array | None, truth: Array) -> float:
    """How wrong a value is: relative for floats, the root of the share that differs for what is exact, 1 for another dtype."""
    if found is None or found.shape != truth.shape:
        return float("inf")
    if found.dtype != truth.dtype:
        return 1.0
    if found.dtype.kind in "iub":
        return float((found != truth).mean()) ** 0.5 if found.size else 0.0
    return relative(found, truth)


class Values:
    """Inner values of the model on the witness, and sub-models made of its nodes."""

    def __init__(self, scene: Scene, graph: Graph, *, readable: bool = True) -> None:
        self._scene, self._graph, self._readable = scene, graph, readable
        self._feeds = feed(scene.case.inputs, scene.signature)
        self._known: dict[str, Array] = dict(self._feeds)
        self._weights = {t.name: t for t in scene.file.model.graph.initializer}
        self._fixed = set(self._find_fixed())

    def constant(self, place: int) -> bool:
        """True when a node makes the same for every input."""
        return place in self._fixed

    def _find_fixed(self) -> Iterator[int]:
        known = set(self._weights)
        for place, node in enumerate(self._graph.nodes):
            if node.op_type not in _RANDOM and all(name in known for name in captured(node)):
                known.update(node.output)
                yield place

    def get(self, names: Iterable[str]) -> dict[str, Array]:
        """Values read without optimisation, from a model that computes nothing else; those that can't be read are left out."""
        wanted = [n for n in dict.fromkeys(names) if n and n not in self._known]
        if wanted:
            model = self._assemble(
                self.needed(range(len(self._graph.nodes)), wanted), self._feeds, wanted, typed=False
            )
            read = {value.name for value in model.graph.input}
            found = opened(model, "disabled").run(
                {n: plain(a) for n, a in self._feeds.items() if n in read}
            )
            self._known.update(
                {
                    n: v
                    for n, v in zip(wanted, found, strict=True)
                    if isinstance(v, np.ndarray) and v.dtype.kind != "O"
                }
            )
        return {n: self._known[n] for n in names if n in self._known}

    def needed(self, places: Iterable[int], outputs: Sequence[str]) -> list[int]:
        """Of these nodes those that the outputs depend on."""
        wanted, kept = set(outputs), []
        for place in sorted(places, reverse=True):
            if wanted & set(self._graph.nodes[place].output):
                kept.append(place)
                wanted |= set(captured(self._graph.nodes[place]))
        return kept[::-1]

    def cut(self, places: Sequence[int], outputs: Sequence[str] | None = None) -> Cut:
        """The sub-model of these nodes: constants come along, everything else that they read becomes an input."""
        nodes = [self._graph.nodes[place] for place in places]
        made = dict.fromkeys(o for node in nodes for o in node.output if o)
        read = list(dict.fromkeys(n for node in nodes for n in captured(node) if n not in made))
        extra = self._constants(read)
        inputs = [
            n
            for n in read
            if n not in self._weights
            and n not in {o for p in extra for o in self._graph.nodes[p].output}
        ]
        given = self.get(inputs)
        if missing := [n for n in inputs if n not in given]:
            raise OnnxproofError(
                "not-a-tensor",
                f"`{missing[0]}` is no tensor (a sequence or an optional), so it can't be an input of a sub-model",
            )
        chosen = list(outputs) if outputs is not None else self._leaving(places, made)
        whole = sorted({*places, *extra})
        return Cut(
            places=list(places),
            given={n: plain(a) for n, a in given.items()},
            outputs=chosen,
            model=self._assemble(whole, given, chosen, typed=self._readable),
        )

    def _leaving(self, places: Sequence[int], made: Iterable[str]) -> list[str]:
        """What others read; a value that nobody reads stays inside, since reading it can make a fault of an optimizer vanish."""
        final = {port.name for port in self._scene.file.outputs}
        leaving = [
            name
            for name in made
            if name in final or not set(self._graph.consumers(name)) <= set(places)
        ]
        return leaving or list(made)

    def _constants(self, names: Iterable[str]) -> list[int]:
        """The nodes that make constants out of constants."""
        found: list[int] = []
        for name in names:
            place = self._graph.makers.get(name)
            if place is not None and place not in found and self.constant(place):
                found += [*self._constants(captured(self._graph.nodes[place])), place]
        return list(dict.fromkeys(found))

    def _assemble(
        self,
        places: Sequence[int],
        given: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        typed: bool = True,
    ) -> onnx.ModelProto:
        nodes = [
            onnx.NodeProto.FromString(self._graph.nodes[p].SerializeToString()) for p in places
        ]
        read = {n for node in nodes for n in captured(node)} | set(outputs)
        source = self._scene.file.model
        graph = onnx.GraphProto(name=f"{source.graph.name or 'model'}_cut", node=nodes)
        graph.initializer.extend(self._loaded(name) for name in self._weights if name in read)
        graph.input.extend(
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(plain(a).dtype), a.shape
            )
            for n, a in given.items()
            if n in read
        )
        kinds = self.get(outputs) if typed else {}
        for name in outputs:
            if name in kinds:
                graph.output.append(
                    helper.make_tensor_value_info(
                        name,
                        helper.np_dtype_to_tensor_dtype(plain(kinds[name]).dtype),
                        [None] * kinds[name].ndim,
                    )
                )
            else:
                graph.output.append(onnx.ValueInfoProto(name=name))
        _widen(
            graph,
            [n for n, a in given.items() if a.dtype == ml_dtypes.bfloat16],
            [n for n, a in kinds.items() if a.dtype == ml_dtypes.bfloat16],
        )
        return onnx.ModelProto(
            ir_version=source.ir_version,
            opset_import=source.opset_import,
            functions=source.functions,
            producer_name="onnxproof",
            graph=graph,
        )

    def _loaded(self, name: str) -> onnx.TensorProto:
        tensor = onnx.TensorProto()
        tensor.CopyFrom(self._weights[name])
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            external_data_helper.load_external_data_for_tensor(tensor, str(self._scene.path.parent))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
        return tensor


def run(cut: Cut, level: str) -> tuple[dict[str, Array], str]:
    """The outputs of a sub-model at a level, or the words with which the runtime refuses it."""
    session = opened(cut.model, level)
    try:
        found = session.run({n: a for n, a in cut.given.items() if n in session.input_names})
    except Refused as why:
        return {}, why.what
    return {n: v for n, v in zip(session.output_names, found, strict=True) if v is not None}, ""


def opened(model: onnx.ModelProto, level: str) -> ort.OrtSession:
    """A session on the model, by way of a file where protobuf could not hold it."""
    if model.ByteSize() < _LARGEST:
        return ort.open(model.SerializeToString(), level)
    with temporary.Folder() as folder:
        save(model, Path(folder) / "model.onnx")
        return ort.open(Path(folder) / "model.onnx", level)


def save(model: onnx.ModelProto, path: Path) -> None:
    """In one file, unless a protobuf can't hold it."""
    onnx.save(
        model, path, save_as_external_data=model.ByteSize() >= _LARGEST, location="model.onnx.data"
    )


def plain(array: Array) -> Array:
    """numpy has no bfloat16: it goes in and out as float32."""
    if array.dtype == ml_dtypes.bfloat16:
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise OnnxproofError(
            "not-a-tensor", f"values of type {array.dtype} can't be kept in a safetensors file"
        )
    return array


def _widen(graph: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Casts at the border, so that bfloat16 values come in and go out as float32 under their own names."""
    for name in inputs:
        _rename(graph.node, name, f"{name}_bfloat16", made=False)
        graph.node.insert(
            0, helper.make_node("Cast", [name], [f"{name}_bfloat16"], to=onnx.TensorProto.BFLOAT16)
        )
    for name in outputs:
        _rename(graph.node, name, f"{name}_bfloat16", made=True)
        graph.node.append(
            helper.make_node("Cast", [f"{name}_bfloat16"], [name], to=onnx.TensorProto.FLOAT)
        )


def _rename(nodes: Iterable[onnx.NodeProto], old: str, new: str, *, made: bool) -> None:
    for node in nodes:
        for names in (node.input, node.output) if made else (node.input,):
            for place in [k for k, name in enumerate(names) if name == old]:
                names[place] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner.node, old, new, made=made)
