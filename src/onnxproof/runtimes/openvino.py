"""OpenVINO: `openvino` on the CPU, `openvino:GPU` or `openvino:NPU` on another device."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import BackendMissing, ModelError, Refused
from onnxproof.runtimes import Description, current, installed_version
from onnxproof.runtimes.session.ports import Ports

Array = np.ndarray[Any, Any]
_KEPT = ("float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="openvino",
        about="Intel's runtime",
        installed=bool(installed_version("openvino")),
        version=installed_version("openvino"),
        device="cpu, gpu, npu",
        install="pip install 'onnxproof[openvino]'",
        limits="int64 is computed in 32 bits; no float64; apart",
    )


def open(model: Path, option: str = "") -> "OpenvinoSession":
    """Compile the model in float32 for one device; nothing is shared with the caller."""
    import openvino

    ports = Ports(model, "openvino")
    ports.only(*_KEPT)
    device = option or "CPU"
    core = openvino.Core()
    kinds = {name.partition(".")[0] for name in core.available_devices}
    if device.partition(".")[0] not in kinds:
        raise BackendMissing(
            "device-missing",
            f"OpenVINO finds no device `{device}` here",
            notes=[f"it finds {', '.join(core.available_devices)}"],
        )
    settings: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": "f32",  # on some processors the default is bfloat16
        "PERFORMANCE_HINT": "LATENCY",
    }
    if device == "CPU" and current().threads:
        settings["INFERENCE_NUM_THREADS"] = current().threads
    try:
        compiled = core.compile_model(core.read_model(str(model)), device, settings)
    except Exception as why:  # one class for everything, with the reason in its text
        raise ModelError(
            "model-refused",
            "OpenVINO can't open this model",
            where=str(model),
            notes=[_short(why)],
        ) from why
    return OpenvinoSession(compiled, ports)


class OpenvinoSession:
    """One infer request of one compiled model: requests may not be shared between threads, and models may not either."""

    def __init__(self, compiled: Any, ports: Ports) -> None:
        self._request = compiled.create_infer_request()
        self._ports = ports
        self.input_names: Sequence[str] = ports.input_names
        self.output_names: Sequence[str] = ports.output_names
        self._known = {name for port in compiled.inputs for name in port.get_names()}

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs for these arrays; shapes are checked here, since OpenVINO may answer a wrong one with its last output."""
        self._ports.check(inputs)
        self._ports.narrow(inputs)
        try:
            feeds = {name: array for name, array in inputs.items() if name in self._known}
            self._request.infer(feeds, share_inputs=False, share_outputs=False)
            tensors = [
                self._request.get_output_tensor(place) for place in range(len(self.output_names))
            ]
            outputs = [np.array(tensor.data) for tensor in tensors]
        except Exception as why:  # see open()
            raise Refused("refused", f"OpenVINO refuses this input: {_short(why)}") from why
        return list(outputs)

    def close(self) -> None:
        """Let the request go, and the model with it."""
        del self._request


def _short(why: Exception) -> str:
    return " ".join(str(why).split())[:400]
