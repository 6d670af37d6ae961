"""What may be done to an input before a graph takes it: tried on arrays first, then written into the graph."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnx

from onnxproof.diagnosis.counterfactuals.workbench import Array, Workbench
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.preprocessing.affine import scale_channels
from onnxproof.results import InputInfo
from onnxproof.runtimes import ort
from onnxproof.runtimes.session.execution import Candidate, Clock

_LEAST_SIDE = 4
"""Of an image, in pixels; twice that without a batch. Not measured."""
_LEAST_SAMPLES = 32
"""Of a sound. Not measured."""
_CHANNEL_AXES = {3: (0, 2), 4: (1, 3), 5: (1, 4)}
"""By rank, where an image keeps its channels: behind the batch, or last."""


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
    about: str = ""
    """Whose scaling it makes of whose, where that has a name."""

    @property
    def scales(self) -> bool:
        """True when it multiplies by something else than 1."""
        return self.factor is not None and bool((self.factor != 1).any())

    @property
    def shifts(self) -> bool:
        """True when it adds something else than 0."""
        return self.shift is not None and bool(self.shift.any())

    def apply(self, array: Array) -> Array:
        """The array as it is fed."""
        prepared = array
        if self.order:
            prepared = np.take(prepared, self.order, axis=self.axis)
        if self.factor is not None and self.shift is not None:
            wide = np.int64 if array.dtype.kind in "iu" else np.float64
            scaled = scale_channels(prepared.astype(wide), self.factor, self.shift, self.axis)
            prepared = scaled.astype(array.dtype)
        if self.layout:
            prepared = np.ascontiguousarray(prepared.transpose(self.layout))
        return prepared

    def insert(self, model: onnx.ModelProto, port: Port) -> None:
        """Let the graph do it to what it is given."""
        graph = model.graph
        info = next(i for i in graph.input if i.name == port.onnx_name)
        value = port.onnx_name
        nodes = []
        for op_type, constant, attributes in self._steps(info):
            inputs = [value]
            value = f"{port.onnx_name}_{op_type.lower()}_prepared"
            if constant is not None:
                graph.initializer.append(onnx.numpy_helper.from_array(constant, f"{value}_by"))
                inputs.append(f"{value}_by")
            nodes.append(onnx.helper.make_node(op_type, inputs, [value], name=value, **attributes))
        _rename_value(graph, port.onnx_name, value)
        for node in reversed(nodes):
            graph.node.insert(0, node)
        if self.layout:
            _permute_dims(info.type.tensor_type.shape, self.layout)

    def _steps(
        self, info: onnx.ValueInfoProto
    ) -> Iterator[tuple[str, Array | None, dict[str, Any]]]:
        """Operator, constant operand and attributes of each node."""
        shape = [1] * len(info.type.tensor_type.shape.dim)
        if shape and self.factor is not None:
            shape[self.axis] = len(self.factor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if self.order:
            yield "Gather", np.array(self.order, np.int64), {"axis": self.axis}
        if self.factor is not None and self.scales:
            yield "Mul", self.factor.astype(dtype).reshape(shape), {}
        if self.shift is not None and self.shifts:
            yield "Add", self.shift.astype(dtype).reshape(shape), {}
        if self.layout:
            yield "Transpose", None, {"perm": list(self.layout)}

    def __str__(self) -> str:
        words = []
        if self.order:
            words.append(f"with its channels in the order {list(self.order)} (RGB and BGR)")
        if self.factor is not None and self.scales:
            words.append(f"times {_format_numbers(self.factor)}")
        if self.shift is not None and self.shifts:
            words.append(f"plus {_format_numbers(self.shift)}")
        if self.layout:
            words.append(f"with its axes in the order {list(self.layout)}")
        text = " and ".join(words)
        if self.about:
            text += f" ({self.about})"
        return text


def _format_numbers(values: Array) -> str:
    """Each number, or one where all are alike."""
    numbers = [f"{v:.4g}" for v in values]
    if len(set(numbers)) == 1:
        return numbers[0]
    return f"[{', '.join(numbers)}]"


def _permute_dims(shape: onnx.TensorShapeProto, layout: tuple[int, ...]) -> None:
    """Declare the dims of an input as they are before it is transposed."""
    dims = [dim.SerializeToString() for dim in shape.dim]
    for axis, dim in zip(layout, dims, strict=True):
        shape.dim[axis].ParseFromString(dim)


def _rename_value(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Every reader of a value reads another, inside branches, too."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
        for attribute in node.attribute:
            inner = list(attribute.graphs)
            if attribute.HasField("g"):
                inner.insert(0, attribute.g)
            for branch in inner:
                _rename_value(branch, old, new)


def ports(workbench: Workbench) -> Iterator[Port]:
    """The inputs that may be prepared in more than one way."""
    tables = _table_indices(workbench)
    for info in workbench.scene.signature.inputs:
        if info.onnx_name is None or info.name not in workbench.scene.case.inputs:
            continue
        shape = workbench.scene.case.inputs[info.name].shape
        port = _port_of(info, info.onnx_name, shape, tables)
        if port is not None:
            yield port


def _port_of(
    info: InputInfo, onnx_name: str, shape: tuple[int, ...], tables: set[str]
) -> Port | None:
    """What an input is, by its shape and type; None where nobody knows."""
    number = "f" if info.dtype == "bfloat16" else np.dtype(info.dtype).kind
    axis = channel_axis(shape)
    if axis is not None and number in "fu":
        return Port(
            name=info.name,
            onnx_name=onnx_name,
            kind="image",
            channels=shape[axis],
            axis=axis,
            scalable=number == "f",
        )
    if number == "f" and len(shape) in (2, 3) and shape[-1] >= _LEAST_SAMPLES:
        return Port(name=info.name, onnx_name=onnx_name, kind="sound")
    if number == "i" and onnx_name in tables:
        return Port(name=info.name, onnx_name=onnx_name, kind="text")
    return None


def channel_axis(shape: tuple[int, ...]) -> int | None:
    """Where an image keeps its channels; None where it is no image."""
    least = _LEAST_SIDE
    if len(shape) == 3:
        least *= 2
    for axis in _CHANNEL_AXES.get(len(shape), ()):
        sides = [size for place, size in enumerate(shape) if place != axis][-2:]
        if shape[axis] in (1, 3, 4) and min(sides) >= least:
            return axis
    return None


def _table_indices(workbench: Workbench) -> set[str]:
    """The values that rows of a table are looked up with."""
    graph = workbench.scene.file.model.graph
    weights = {tensor.name for tensor in graph.initializer}
    return {
        node.input[1]
        for node in graph.node
        if node.op_type == "Gather" and node.input[0] in weights
    }


class PreparationTrials:
    """The candidate in one session, on differently prepared inputs: a trial costs a run."""

    def __init__(self, workbench: Workbench, port: Port, *, most: int) -> None:
        self._workbench = workbench
        self._port = port
        self._left = most

    @cached_property
    def _candidate(self) -> Candidate:
        scene = self._workbench.scene
        session = ort.open(scene.path, self._workbench.ort_option)
        return Candidate(scene.backend, scene.path, scene.signature, Clock(), session=session)

    @property
    def late(self) -> bool:
        """True when the trials for this cause are used up, or the time for all is over."""
        return self._workbench.late or self._left <= 0

    def counterfactual(self, preparation: Preparation) -> Counterfactual:
        """The candidate with its input prepared so."""
        return Counterfactual(error=partial(self._error, preparation), in_reference=False)

    def fixes_witness(self, preparation: Preparation) -> bool:
        """Whether the error on the witness is gone when the input is prepared so."""
        self._left -= 1
        return self._workbench.cured(self._error(preparation, self._workbench.witness))

    def _error(self, preparation: Preparation, case: TrialCase) -> float:
        """How far the file is from the truth of a case when its input is prepared so."""
        try:
            prepared = preparation.apply(case.inputs[self._port.name])
            outputs = self._candidate.run({**case.inputs, self._port.name: prepared})
        except (OnnxproofError, ValueError, IndexError):
            return float("inf")
        return case.scene.error(outputs)
