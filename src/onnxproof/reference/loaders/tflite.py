"""A model of TensorFlow Lite: what its own file (`.tflite`) says by its interpreter on the CPU, as one side of a converted chain."""

from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import SubjectError
from onnxproof.reference.loaders import Array, ArrayModel, Inputs, PlainModel
from onnxproof.system.user_files import require_regular


def matches(thing: Any) -> bool:
    """Whether it is an interpreter of LiteRT or TensorFlow Lite."""
    packages = ("ai_edge_litert", "tflite_runtime", "tensorflow")
    kind = type(thing)
    return kind.__module__.partition(".")[0] in packages and kind.__name__ == "Interpreter"


def open(thing: Any) -> ArrayModel:
    """The model as it is."""
    return _TfliteModel(thing)


def read(path: Path) -> Any:
    """The interpreter of a file."""
    require_regular(path, SubjectError)
    try:
        from ai_edge_litert.interpreter import Interpreter
    except ImportError as why:
        raise SubjectError(
            "tflite-missing",
            f"reading `{path.name}` needs LiteRT, the interpreter of TensorFlow Lite",
            where=str(path),
            help="pip install 'onnxproof[tflite]'",
        ) from why
    try:
        return Interpreter(model_path=str(path))
    except (ValueError, RuntimeError) as why:
        raise SubjectError(
            "bad-tflite", f"`{path.name}` can't be read by LiteRT: {why}", where=str(path)
        ) from why


class _TfliteModel(PlainModel):
    def __init__(self, interpreter: Any) -> None:
        self._interpreter = interpreter
        self._shapes: list[tuple[int, ...]] = []

    def call(self, inputs: Inputs) -> Any:
        """Inputs by name where the file has these names, else in order; outputs by name."""
        ports = self._interpreter.get_input_details()
        arrays = _in_order(inputs, [_name(port) for port in ports])
        shapes = [array.shape for array in arrays]
        if shapes != self._shapes:
            for port, array in zip(ports, arrays, strict=True):
                self._interpreter.resize_tensor_input(port["index"], array.shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes
        for port, array in zip(ports, arrays, strict=True):
            self._interpreter.set_tensor(port["index"], np.ascontiguousarray(array))
        self._interpreter.invoke()
        outputs = self._interpreter.get_output_details()
        return {
            _name(port): np.array(self._interpreter.get_tensor(port["index"])) for port in outputs
        }


def _in_order(inputs: Inputs, names: list[str]) -> list[Array]:
    if set(names) == set(inputs):
        return [inputs[name] for name in names]
    return list(inputs.values())


def _name(port: Any) -> str:
    """Without what TensorFlow puts around it: `serving_default_x:0` is `x`."""
    return str(port["name"]).removeprefix("serving_default_").partition(":")[0]
