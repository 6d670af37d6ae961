"""A model of OpenVINO: what its own file (`.xml` with `.bin` beside it) says on the CPU, as the reference of a converted chain."""

import warnings
from pathlib import Path
from typing import Any

from onnxproof.errors import SubjectError
from onnxproof.reference.loaders import ArrayModel, Inputs, PlainModel
from onnxproof.system.user_files import require_regular


def matches(thing: Any) -> bool:
    """Whether it is a compiled model of OpenVINO."""
    kind = type(thing)
    return kind.__module__.partition(".")[0] == "openvino" and kind.__name__ == "CompiledModel"


def open(thing: Any) -> ArrayModel:
    """The model as it is."""
    return _OpenVinoModel(thing)


def read(path: Path) -> Any:
    """The compiled model of a file; its arithmetic is float32, and not the half that some CPUs would choose."""
    require_regular(path, SubjectError)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import openvino
    except ImportError as why:
        raise SubjectError(
            "openvino-missing",
            f"reading `{path.name}` needs OpenVINO",
            where=str(path),
            help="pip install 'onnxproof[openvino]'",
        ) from why
    try:
        return openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    except RuntimeError as why:
        raise SubjectError(
            "bad-openvino", f"`{path.name}` can't be read by OpenVINO: {why}", where=str(path)
        ) from why


class _OpenVinoModel(PlainModel):
    def __init__(self, model: Any) -> None:
        self._model = model

    def call(self, inputs: Inputs) -> Any:
        """Inputs by name where the file has these names, else in order; outputs by name."""
        names = {name for port in self._model.inputs for name in port.get_names()}
        if set(inputs) <= names:
            answers = self._model(dict(inputs))
        else:
            answers = self._model(list(inputs.values()))
        return {_name(port, place): answers[port] for place, port in enumerate(self._model.outputs)}


def _name(port: Any, place: int) -> str:
    return min(port.get_names(), default=f"output{place}")
