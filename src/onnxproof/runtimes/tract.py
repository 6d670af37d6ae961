"""tract, a runtime in Rust for small devices; it wants every dim fixed, so that a model is prepared for each shape."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import ModelError, Refused
from onnxproof.onnxmodel import onnx_file
from onnxproof.runtimes import Description, installed_version
from onnxproof.runtimes.session.ports import Ports
from onnxproof.system import temporary

Array = np.ndarray[Any, Any]
_FACTS = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
}
_PREPARED = 4
"""Shapes that are kept prepared: cases come in runs of one shape, and each prepared model holds the weights."""


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="tract",
        about="a runtime in Rust, for small devices",
        installed=bool(installed_version("tract")),
        version=installed_version("tract"),
        device="cpu",
        install="pip install 'onnxproof[tract]'",
        limits="prepared anew for each shape; one thread; apart: it can abort",
    )


def open(model: Path, option: str = "") -> "TractSession":
    """Open a file; what tract can't do shows when the first shape is known, unless the file fixes all of them."""
    ports = Ports(model, "tract")
    ports.only(*_FACTS)
    session = TractSession(model, ports)
    shapes = _fixed_shapes(ports)
    if shapes is not None:
        try:
            session.prepare(shapes)
        except Refused as why:
            raise ModelError(
                "model-refused",
                "tract can't open this model",
                where=str(model),
                notes=[why.what],
            ) from why
    else:
        session.read()
    return session


def _fixed_shapes(ports: Ports) -> dict[str, tuple[int, ...]] | None:
    """The shapes of the inputs; None where a dim is open."""
    shapes: dict[str, tuple[int, ...]] = {}
    for port in ports.inputs:
        if port.dims is None:
            return None
        sizes = [dim for dim in port.dims if isinstance(dim, int)]
        if len(sizes) != len(port.dims):
            return None
        shapes[port.name] = tuple(sizes)
    return shapes


class TractSession:
    """Prepared models by shape; the file's value_info is cleared, since tract takes its symbols for promises."""

    def __init__(self, model: Path, ports: Ports) -> None:
        self._model = model
        self._ports = ports
        self._prepared: OrderedDict[tuple[tuple[int, ...], ...], Any] = OrderedDict()
        self._folder = temporary.Folder()
        self._plain = _without_value_info(model, Path(self._folder.name))
        self.input_names: Sequence[str] = ports.input_names
        self.output_names: Sequence[str] = ports.output_names

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays, by the model that is prepared for their shapes."""
        self._ports.check(inputs)
        prepared = self.prepare({name: inputs[name].shape for name in self.input_names})
        try:
            arrays = [inputs[name] for name in self.input_names]
            outputs = prepared.run(
                [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
            )
            return [_to_numpy(value) for value in outputs]
        except Exception as why:  # one class for everything, with the reason in its text
            raise Refused("refused", f"tract refuses this input: {_short(why)}") from why

    def read(self) -> Any:
        """The model as tract reads it, before any shape is known."""
        import tract

        try:
            return tract.onnx().load(str(self._plain))
        except Exception as why:  # see run()
            raise ModelError(
                "model-refused",
                "tract can't open this model",
                where=str(self._model),
                notes=[_short(why)],
            ) from why

    def prepare(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """The model with these input shapes fixed, ready to run."""
        key = tuple(shapes[name] for name in self.input_names)
        if key not in self._prepared:
            model = self.read()
            try:
                for place, port in enumerate(self._ports.inputs):
                    fact = [*map(str, shapes[port.name]), _FACTS[port.dtype]]
                    model.set_input_fact(place, ",".join(fact))
                for place in range(len(self.output_names)):
                    model.set_output_fact(place, None)
                ready = model.into_model().into_runnable()
            except Exception as why:  # see run()
                raise Refused(
                    "refused", f"tract can't prepare this model for {dict(shapes)}: {_short(why)}"
                ) from why
            self._prepared[key] = ready
            while len(self._prepared) > _PREPARED:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return self._prepared[key]

    def close(self) -> None:
        """Let the prepared models go."""
        self._prepared.clear()
        self._folder.cleanup()


def _without_value_info(model: Path, folder: Path) -> Path:
    """A copy without value_info and with open output shapes."""
    loaded = onnx.load(model, load_external_data=False)
    del loaded.graph.value_info[:]
    for output in loaded.graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx_file.save_changed(loaded, model, folder / "model.onnx")


def _to_numpy(value: Any) -> Array:
    """An array of the tensor's own rank; an empty tensor has no data to point at."""
    kind, shape, _ = value._parts()
    if 0 not in shape:
        return np.asarray(value.to_numpy()).reshape(shape)
    names = {fact: name for name, fact in _FACTS.items()}
    return np.empty(shape, names[str(kind).lower()])


def _short(why: Exception) -> str:
    return " ".join(str(why).split())[:400]
