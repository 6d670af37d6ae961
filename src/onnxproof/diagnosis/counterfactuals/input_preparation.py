"""What may be done to an input before a graph takes it: tried on arrays first, then written into the graph."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel.graph import consumed_names
from onnxproof.preprocessing.affine import scale_channels
from onnxproof.results import Case
from onnxproof.runtimes import ort, parse
from onnxproof.runtimes.session.execution import Candidate, Clock

_LEAST_SIDE, _LEAST_SAMPLES = 4, 32
_OTHERS, _EXPLAINED = 2, 20
"""Other cases that are asked, and how much nearer the file must be on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input that is an image, a sound or a row of ids by its shape and type."""

    name: str
    onnx_name: str
    kind: str
    channels: int = 1
    axis: int = 0
    """Of the channels, where there are some."""
    scalable: bool = True
    """False for integers: what is scaled would be rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """Channels in another order, a factor and a shift for each, axes in another order: in this order."""

    axis: int = 0
    order: tuple[int, ...] = ()
    factor: Array | None = None
    shift: Array | None = None
    layout: tuple[int, ...] = ()
    said: str = ""
    """Whose scaling it makes of whose, where that has a name."""

    def apply(self, array: Array) -> Array:
        """The array as it is fed."""
        made = np.take(array, self.order, axis=self.axis) if self.order else array
        if self.factor is not None and self.shift is not None:
            wide = made.astype(np.int64 if array.dtype.kind in "iu" else np.float64)
            made = scale_channels(wide, self.factor, self.shift, self.axis).astype(array.dtype)
        return np.ascontiguousarray(made.transpose(self.layout)) if self.layout else made

    def insert(self, model: onnx.ModelProto, port: Port) -> None:
        """Let the graph do it to what it is given."""
        graph, kind = model.graph, next(i for i in model.graph.input if i.name == port.onnx_name)
        name, nodes = port.onnx_name, []
        for op_type, constant, attributes in self._steps(kind):
            inputs, made = [name], f"{port.onnx_name}_{op_type.lower()}_prepared"
            if constant is not None:
                graph.initializer.append(onnx.numpy_helper.from_array(constant, f"{made}_by"))
                inputs.append(f"{made}_by")
            nodes.append(onnx.helper.make_node(op_type, inputs, [made], name=made, **attributes))
            name = made
        _renamed(graph, port.onnx_name, name)
        for node in reversed(nodes):
            graph.node.insert(0, node)
        if self.layout:
            dims = list(kind.type.tensor_type.shape.dim)
            for place, axis in enumerate(self.layout):
                kind.type.tensor_type.shape.dim[axis].CopyFrom(
                    onnx.TensorShapeProto.Dimension.FromString(dims[place].SerializeToString())
                )

    def _steps(
        self, kind: onnx.ValueInfoProto
    ) -> Iterator[tuple[str, Array | None, dict[str, Any]]]:
        shape = [1] * len(kind.type.tensor_type.shape.dim)
        if shape and self.factor is not None:
            shape[self.axis] = len(self.factor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.type.tensor_type.elem_type)
        if self.order:
            yield "Gather", np.array(self.order, np.int64), {"axis": self.axis}
        if self.factor is not None and (self.factor != 1).any():
            yield "Mul", self.factor.astype(dtype).reshape(shape), {}
        if self.shift is not None and self.shift.any():
            yield "Add", self.shift.astype(dtype).reshape(shape), {}
        if self.layout:
            yield "Transpose", None, {"perm": list(self.layout)}

    def __str__(self) -> str:
        words = (
            [f"with its channels in the order {list(self.order)} (RGB and BGR)"]
            if self.order
            else []
        )
        words += (
            [f"times {_few(self.factor)}"]
            if self.factor is not None and (self.factor != 1).any()
            else []
        )
        words += [f"plus {_few(self.shift)}"] if self.shift is not None and self.shift.any() else []
        words += [f"with its axes in the order {list(self.layout)}"] if self.layout else []
        return " and ".join(words) + (f" ({self.said})" if self.said else "")


def _few(values: Array) -> str:
    numbers = [f"{v:.4g}" for v in values]
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers)}]"


def _renamed(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Every reader of a value reads another, inside branches, too."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(
                attribute.graphs
            ):
                _renamed(inner, old, new)


def ports(bench: Workbench) -> Iterator[Port]:
    """The inputs that may be prepared in more than one way."""
    tables = _tables(bench)
    for info in bench.scene.signature.inputs:
        if info.onnx_name is None or info.name not in bench.scene.case.inputs:
            continue
        shape, number = (
            bench.scene.case.inputs[info.name].shape,
            np.dtype(info.dtype).kind if info.dtype != "bfloat16" else "f",
        )
        axis = _channel_axis(shape)
        if axis is not None and number in "fu":
            yield Port(
                name=info.name,
                onnx_name=info.onnx_name,
                kind="image",
                channels=shape[axis],
                axis=axis,
                scalable=number == "f",
            )
        elif number == "f" and len(shape) in (2, 3) and shape[-1] >= _LEAST_SAMPLES:
            yield Port(name=info.name, onnx_name=info.onnx_name, kind="sound")
        elif number == "i" and info.onnx_name in tables:
            yield Port(name=info.name, onnx_name=info.onnx_name, kind="text")


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Where an image keeps its channels: behind the batch, or last."""
    for axis in {3: (0, 2), 4: (1, 3), 5: (1, 4)}.get(len(shape), ()):
        sides = [n for place, n in enumerate(shape) if place != axis][-2:]
        if shape[axis] in (1, 3, 4) and min(sides) >= _LEAST_SIDE * (2 if len(shape) == 3 else 1):
            return axis
    return None


def _tables(bench: Workbench) -> set[str]:
    """What rows of a table are looked up with."""
    graph = bench.scene.file.model.graph
    weights = {t.name for t in graph.initializer}
    return {
        node.input[1]
        for node in graph.node
        if node.op_type == "Gather" and node.input[0] in weights
    }


class Asked:
    """The candidate in one session, asked about differently prepared inputs: a try costs a run."""

    def __init__(self, bench: Workbench, port: Port, *, most: int) -> None:
        self._bench, self._port, self._left = bench, port, most

    @cached_property
    def _candidate(self) -> Candidate:
        scene, (name, option) = self._bench.scene, parse(self._bench.scene.backend)
        return Candidate(
            scene.backend,
            scene.path,
            scene.signature,
            Clock(),
            session=ort.open(scene.path, option if name == "ort" else ""),
        )

    @property
    def late(self) -> bool:
        """True when the trials for this cause are used up, or the time for all is over."""
        return self._bench.late or self._left <= 0

    def distance(
        self, preparation: Preparation, case: Case | None = None, truth: list[Array] | None = None
    ) -> float:
        """How far the file is from the truth when its input is prepared so."""
        self._left -= 1
        inputs = (case or self._bench.scene.case).inputs
        try:
            fed = {**inputs, self._port.name: preparation.apply(inputs[self._port.name])}
            found = self._candidate.run(fed)
        except (OnnxproofError, ValueError, IndexError):
            return float("inf")
        return self._bench.scene.error(found, truth)

    def mends(self, preparation: Preparation) -> float | None:
        """What is left of the error where it is gone, on the witness and on other cases that differ."""
        after = self.distance(preparation)
        if not self._bench.cured(after):
            return None
        reference = self._bench.scene.reference
        for case in self._bench.others[:_OTHERS]:
            truth = reference.truth(case.inputs) or reference.run(case.inputs)
            was, now = (
                self.distance(Preparation(), case, truth),
                self.distance(preparation, case, truth),
            )
            if now > max(was / _EXPLAINED, self._bench.limit):
                return None
        return after


class FirstLayer:
    """What the first layer with weights makes of an input: as far as that, a graph is affine in it, and its preparation can be computed."""

    _LAYERS = ("Conv", "Gemm", "MatMul", "ConvTranspose")
    _CALLS = ("conv", "mm", "linear", "batch_norm")

    def __init__(self, bench: Workbench, port: Port) -> None:
        self._bench, self._port = bench, port
        self._feeds = {
            i.onnx_name: np.asarray(bench.scene.case.inputs[i.name])
            for i in bench.scene.signature.inputs
            if i.onnx_name
        }
        self.slices: list[onnx.NodeProto] = []
        """The parts that are taken of the input on the way: crops."""
        self.resizes: list[onnx.NodeProto] = []
        self.normed = False
        """Whether there is a norm with weights on the way: what is wrong with it is affine, too."""
        reached = {port.onnx_name}
        self._value, nodes = "", list(bench.model.graph.node)
        for node in nodes:
            if reached.isdisjoint(node.input):
                continue
            if self._value and not (node.op_type == "Add" and self._value in node.input):
                break
            if node.op_type in (self._LAYERS if port.kind != "text" else ("Gather",)):
                self._value, reached = node.output[0], {node.output[0]}
            elif self._value:
                self._value = node.output[0]  # the bias of a MatMul
                break
            else:
                self.slices += [node] if node.op_type == "Slice" else []
                self.resizes += [node] if node.op_type == "Resize" else []
                self.normed |= node.op_type == "BatchNormalization"
                reached |= set(node.output)
        self._session = self._opened() if self._value else None

    def _opened(self) -> Any:
        needed, model = {self._value}, self._bench.edited(lambda graph: None)
        nodes = list(model.graph.node)
        del model.graph.node[:], model.graph.output[:]
        for node in reversed(nodes):
            if not needed.isdisjoint(node.output):
                needed |= set(consumed_names(node))
                model.graph.node.insert(0, node)
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(self._value))
        self._feeds = {name: array for name, array in self._feeds.items() if name in needed}
        for port in [p for p in model.graph.input if p.name not in needed]:
            model.graph.input.remove(port)
        try:
            return ort.open(model.SerializeToString(), "disabled")
        except OnnxproofError:
            return None

    def __call__(self, array: Array) -> Array | None:
        """The layer's values for this input."""
        try:
            found = (
                self._session.run({**self._feeds, self._port.onnx_name: array})[0]
                if self._session is not None
                else None
            )
        except OnnxproofError:
            return None
        return None if found is None else found.astype(np.float64)

    def targets(self, size: int) -> Iterator[Array]:
        """The module's own values that this may be: of its first layers with weights, or of the norm behind one, which may be folded in."""
        calls = self._CALLS if self._port.kind != "text" else ("embedding", "index", "gather")
        alike = [
            e
            for e in self._bench.located.traced_values
            if e.sketch.count == size and any(word in e.op for word in calls)
        ]
        for entry in alike[:3]:
            value = self._bench.located.fetch(entry.place)
            if value is not None:
                yield np.asarray(value, np.float64)
