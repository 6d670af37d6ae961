"""The standard's own evaluator: `reference` in the file's precision, `reference:float64` for what the graph says in float64.

`reference:float16`, `reference:bfloat16` and `reference:tf32` compute as a device of that precision does (`evaluator/device.py`).

onnx's evaluator is the base; what it lacks or gets wrong is in `runtimes/evaluator`. It is slow: a truth, not a runtime.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import Crashed, ModelError, OnnxproofError, Refused, UsageError
from onnxproof.numerics import port_values
from onnxproof.onnxmodel import mapped_weights, onnx_file, ordering
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.evaluator import promotion, stored_weights
from onnxproof.runtimes.evaluator.device import Device, DeviceEvaluator, evaluator_for
from onnxproof.runtimes.evaluator.evaluator import (
    Evaluator,
    Observer,
    WideEvaluator,
    all_inner_evaluators,
    evaluate,
    is_float,
    shorten,
)
from onnxproof.system import guard

Array = np.ndarray[Any, Any]
IN_PROCESS = True
_LAST_NODE_S = 1.0
"""Seconds beyond the limit that the node which is being evaluated may take: then it is left behind. Not measured."""
_DOUBLE = onnx.TensorProto.DOUBLE


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="reference",
        about="the ONNX standard's evaluator: what the graph says",
        installed=True,
        version=onnx.__version__,
        device="cpu",
        install="pip install 'onnxproof[reference]'",
        limits="slow; reference:float64 in float64, reference:float16 as a half device computes",
    )


def open(
    model: Path | bytes,
    option: str = "",
    *,
    outputs: Sequence[str] | None = None,
) -> "ReferenceSession":
    """Open a file (or a serialized model) in its own precision or in float64; `outputs` may name inner values too."""
    device = Device.of(option)
    if option not in ("", "float64") and device is None:
        raise UsageError(
            "unknown-option",
            f"`reference:{option}` is not a precision of the reference evaluator",
            help="use `reference` or `reference:` with float64, float16, bfloat16 or tf32",
        )
    loaded = _load(model)
    wide = option == "float64"
    with guard.memory():
        if wide:
            promotion.promote_in_place(loaded, weights=False)
        if outputs is not None:
            add_outputs(loaded, outputs)
        return ReferenceSession(loaded, wide=wide, device=device, outputs=outputs)


class ReferenceSession:
    """The evaluator behind the checks that it does not make itself: names, dtypes and shapes of what it is given."""

    def __init__(
        self,
        model: onnx.ModelProto,
        *,
        wide: bool,
        device: Device | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:
        self._wide = wide
        self._device = device
        self.limit_s = current().time_s
        """Seconds after which a run is given up and refused with the code `too-slow`."""
        self._hung = False
        self._ports = {value.name: value for value in model.graph.input}
        self._optional = {tensor.name for tensor in model.graph.initializer}
        try:
            self._evaluator = _open_evaluator(model, wide=wide, device=device)
        except OnnxproofError:
            raise
        except Exception as why:
            # The evaluator reads attributes here, and raises whatever they make it raise.
            raise ModelError(
                "model-refused",
                "the reference evaluator can't open this model",
                notes=[f"{type(why).__name__}: {shorten(why)}"],
            ) from why
        self._inner = list(all_inner_evaluators(self._evaluator, set()))
        for tensor in model.graph.initializer:  # the evaluator holds them as arrays now
            tensor.ClearField("raw_data")
        self.input_names: Sequence[str] = [
            name for name in self._ports if name not in self._optional
        ]
        if outputs is None:
            outputs = [value.name for value in model.graph.output]
        self.output_names: Sequence[str] = list(outputs)

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays, which stay as they are."""
        feeds = self._check_feeds(inputs)
        fed_ids = {id(array) for array in feeds.values()}
        if self._hung:
            raise Refused("too-slow", "the reference evaluator was left behind in an earlier run")
        try:
            outputs = guard.run(
                lambda: evaluate(self._evaluator, self.output_names, feeds, self.limit_s),
                limit_s=self.limit_s + _LAST_NODE_S,
                what="the reference evaluator",
            )
        except Crashed as why:
            self._hung = True
            raise Refused(
                "too-slow",
                "the reference evaluator ran out of time within one node",
                notes=why.notes,
            ) from why
        return [np.array(value) if id(value) in fed_ids else value for value in outputs]

    def observe(self, observer: Observer | None, *, inner: bool = False) -> None:
        """Let `observer` see (and replace) the outputs of every node of the main graph while it runs; `inner` also inside subgraphs and functions."""
        self._evaluator.observer = observer
        if inner:
            for evaluator in self._inner:
                evaluator.observer = observer

    @property
    def nodes(self) -> Sequence[Any]:
        """The nodes of the main graph as the evaluator runs them."""
        return list(self._evaluator.rt_nodes_)

    def node(self, place: int) -> Any:
        """One of them: the evaluators of its subgraphs are its attributes."""
        return self.nodes[place]

    def close(self) -> None:
        """Let the weights go."""
        del self._evaluator, self._inner

    def _check_feeds(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        inputs = self._assembled(inputs)
        unknown = [name for name in inputs if name not in self._ports]
        missing = [name for name in self.input_names if name not in inputs]
        notes = [f"its inputs are {', '.join(self.input_names)}"]
        if unknown:
            raise Refused("refused", f"the model has no input `{unknown[0]}`", notes=notes)
        if missing:
            raise Refused("refused", f"the input `{missing[0]}` was not given", notes=notes)
        return {name: self._check_feed(self._ports[name], array) for name, array in inputs.items()}

    def _assembled(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Sequences and maps out of their parts, where they are not whole already."""
        kinds = {name: port_kind(port.type) for name, port in self._ports.items()}
        others = {name: kind for name, kind in kinds.items() if kind}
        if not others or any(isinstance(value, list) for value in inputs.values()):
            return inputs
        return port_values.assemble(inputs, others)

    def _check_feed(self, port: onnx.ValueInfoProto, array: Any) -> Any:
        """The array as the evaluator takes it: in float64 where the graph is; refused where dtype or shape differ."""
        if isinstance(array, list):  # a sequence
            return [self._widen(item) for item in array]
        if not port.type.HasField("tensor_type"):
            return array
        tensor = port.type.tensor_type
        array = np.asarray(array)
        if tensor.elem_type == _DOUBLE:
            array = self._widen(array)
        _check_dtype(port.name, tensor, array)
        if tensor.HasField("shape"):
            _check_shape(port.name, tensor, array)
        if isinstance(self._evaluator, DeviceEvaluator) and not self._evaluator.own_types:
            return self._in_format(array)
        return array

    def _in_format(self, array: Array) -> Array:
        """An input of a graph that is run as if it were in the device's format."""
        if self._device is None or self._device.dtype is None or array.dtype != np.float32:
            return array
        return self._device.round(array).astype(np.float32)

    def _widen(self, array: Array) -> Array:
        if self._wide and is_float(array.dtype):
            return array.astype(np.float64, copy=False)
        return array


def _open_evaluator(model: onnx.ModelProto, *, wide: bool, device: Device | None) -> Evaluator:
    if device is not None:
        return evaluator_for(device, model)
    if wide:
        return WideEvaluator(model)
    return Evaluator(model)


def port_kind(declared: onnx.TypeProto) -> str:
    """What a port is where it is no tensor, in ONNX Runtime's words as far as maps and sequences go; empty for a tensor."""
    which = declared.WhichOneof("value")
    if which == "sequence_type":
        return f"seq({port_kind(declared.sequence_type.elem_type)})"
    if which == "optional_type":
        return port_kind(declared.optional_type.elem_type)
    if which == "map_type":
        is_text = declared.map_type.key_type == onnx.TensorProto.STRING
        return "map(string)" if is_text else "map(int64)"
    return ""


def _check_dtype(name: str, tensor: onnx.TypeProto.Tensor, array: Array) -> None:
    if not tensor.elem_type:
        return
    wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if wanted != array.dtype and wanted.kind != "O":
        raise Refused("refused", f"`{name}` is {array.dtype}, and the model takes {wanted}")


def _check_shape(name: str, tensor: onnx.TypeProto.Tensor, array: Array) -> None:
    dims = [dim.dim_value if dim.HasField("dim_value") else "?" for dim in tensor.shape.dim]
    same_rank = len(dims) == array.ndim
    if same_rank and all(d in ("?", n) for d, n in zip(dims, array.shape, strict=True)):
        return
    raise Refused(
        "refused",
        f"`{name}` has the shape {list(array.shape)}, and the model takes {dims}",
    )


def add_outputs(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Make inner values outputs of the graph; a name is all that is needed."""
    outputs = {value.name for value in model.graph.output}
    values = {name for node in model.graph.node for name in node.output}
    values |= {value.name for value in (*model.graph.input, *model.graph.initializer)}
    for name in dict.fromkeys(names):
        if name in outputs:
            continue
        if name not in values:
            raise UsageError("unknown-value", f"the graph has no value `{name}`")
        model.graph.output.append(onnx.ValueInfoProto(name=name))


def _load(source: Path | bytes) -> onnx.ModelProto:
    """The model with what is kept beside it; one standard domain has two spellings, and the evaluator knows one."""
    if isinstance(source, bytes):
        model = onnx.load_model_from_string(source)
        folder = str(mapped_weights.folder_of(model) or "")
    else:
        onnx_file.read(source)  # for its message when the file can't be read
        model = onnx.load(source, load_external_data=False)
        folder = str(Path(source).parent)
    main = {id(tensor) for tensor in model.graph.initializer}
    for tensor in _external_tensors(model):
        if id(tensor) in main and stored_weights.is_large(tensor, Path(folder)):
            _make_location_a_path(tensor, Path(folder))
            continue
        try:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, folder)
        except onnx.checker.ValidationError as why:  # a link, which onnx does not follow
            raise ModelError("external-data", str(why), where=str(source)) from why
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
    imports = [*model.opset_import]
    for function in model.functions:
        imports += function.opset_import
    for named in (*onnx_file.walk(model), *imports):
        if named.domain == "ai.onnx":
            named.domain = ""
    ordering.sort_nodes(model.graph)
    return model


def _make_location_a_path(tensor: onnx.TensorProto, folder: Path) -> None:
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = str(folder / entry.value)


def _external_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    tensors = [*model.graph.initializer]
    for node in onnx_file.walk(model):
        for attribute in node.attribute:
            if attribute.type in (onnx.AttributeProto.TENSOR, onnx.AttributeProto.GRAPH):
                tensors += [attribute.t, *attribute.g.initializer]
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            yield tensor
