"""Another runtime's own file in the place of the ONNX file that it was made of: `file:model.xml` (OpenVINO), `file:model.tflite`.

`diff a.onnx model.xml` runs it: inputs and outputs go by the names of the ONNX file, or in its order where the other file has other names.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxproof.errors import ModelError, Refused
from onnxproof.runtimes import Description
from onnxproof.runtimes.session.ports import Ports

if TYPE_CHECKING:
    from onnxproof.reference.loaders import ArrayModel

Array = np.ndarray[Any, Any]


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="file",
        about="what was made of the ONNX file: file:model.xml, file:model.tflite",
        installed=True,
        version="",
        limits="needs the runtime of that file",
    )


def open(model: Path, option: str = "") -> "FileSession":
    """The file after the colon, with the ports of the ONNX file."""
    from onnxproof.reference import loaders
    from onnxproof.reference.loaders import openvino, tflite

    readers = {".xml": openvino, ".tflite": tflite}
    path = Path(option)
    reader = readers.get(path.suffix)
    if reader is None:
        raise ModelError(
            "unknown-file",
            f"`{option}` is no file of another runtime that onnxproof can read",
            help=f"give one of {', '.join(readers)}: `file:model.xml`",
        )
    found: loaders.Loader = reader
    return FileSession(found.open(reader.read(path)), Ports(model, f"file:{option}"))


class FileSession:
    """The model of the other file, asked by the names of the ONNX file."""

    def __init__(self, model: "ArrayModel", ports: Ports) -> None:
        self._model = model
        self._ports = ports
        self.input_names: Sequence[str] = ports.input_names
        self.output_names: Sequence[str] = ports.output_names

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs in the ONNX file's order."""
        self._ports.check(inputs)
        ordered = {name: np.asarray(inputs[name]) for name in self.input_names}
        try:
            answers = self._model.call(ordered)
        except Exception as why:  # every runtime has its own classes
            words = " ".join(str(why).split())[:400]
            raise Refused("refused", f"the file refuses this input: {words}") from why
        if set(answers) == set(self.output_names):
            return [answers[name] for name in self.output_names]
        if len(answers) != len(self.output_names):
            raise Refused(
                "output-count",
                f"it gives {len(answers)} outputs, and the ONNX file {len(self.output_names)}",
                notes=[f"it gives {', '.join(answers)}"],
            )
        return list(answers.values())

    def close(self) -> None:
        """Let the model go."""
        del self._model
