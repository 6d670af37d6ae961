"""OpenCV's `cv2.dnn`, by its new engine; it can crash on what it does not know, so that it runs in a process of its own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import ModelError, Refused
from onnxproof.runtimes import Description, current, installed_version
from onnxproof.runtimes.session.ports import Ports

Array = np.ndarray[Any, Any]
_PACKAGES = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python-headless",
    "opencv-contrib-python",
)
_KEPT = ("float32", "float64", "int64", "int32", "uint8", "int8", "bool")


def describe() -> Description:
    """What `onnxproof backends` prints."""
    version = next(filter(None, map(installed_version, _PACKAGES)), "")
    return Description(
        name="opencv",
        about="cv2.dnn, the new engine",
        installed=bool(version),
        version=version,
        device="cpu",
        install="pip install 'onnxproof[opencv]'",
        limits="int64 is computed in 32 bits; no float16; no empty tensors; apart: it can crash",
    )


def open(model: Path, option: str = "") -> "OpencvSession":
    """Read a file."""
    import cv2

    ports = Ports(model, "OpenCV")
    ports.only(*_KEPT)
    if current().threads:
        cv2.setNumThreads(current().threads)
    try:
        net = cv2.dnn.readNetFromONNX(str(model), engine=cv2.dnn.ENGINE_NEW)
    except Exception as why:  # cv2.error, with the reason in its text
        raise ModelError(
            "model-refused",
            "OpenCV can't open this model",
            where=str(model),
            notes=[_short(why)],
        ) from why
    return OpencvSession(net, ports)


class OpencvSession:
    """A cv2.dnn net that is checked before and after, since it neither names nor types what it is given."""

    def __init__(self, net: Any, ports: Ports) -> None:
        self._net = net
        self._ports = ports
        self.input_names: Sequence[str] = ports.input_names
        self.output_names: Sequence[str] = ports.output_names

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays."""
        self._ports.check(inputs)
        self._ports.narrow(inputs)
        for name, array in inputs.items():
            if not array.size or not array.ndim:
                kind = "empty tensor" if array.ndim else "scalar"
                raise Refused("refused", f"OpenCV takes no {kind}, and `{name}` is one")
        try:
            for name, array in inputs.items():
                self._net.setInput(np.array(array, order="C"), name)
            outputs = self._net.forward(list(self.output_names))
        except Exception as why:  # see open()
            raise Refused("refused", f"OpenCV refuses this input: {_short(why)}") from why
        return [np.array(value) for value in outputs]

    def close(self) -> None:
        """Let the net go."""
        del self._net


def _short(why: Exception) -> str:
    return " ".join(str(why).split())[:400]
