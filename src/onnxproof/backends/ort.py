"""ONNX Runtime: any optimisation level (`ort:disabled`, `ort:basic`, `ort:extended`, `ort:all`) and any provider (`ort:cuda`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from onnxproof.backends import Description
from onnxproof.errors import BackendMissing, ModelError, Refused, UsageError

_LEVELS = {
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_ONNX_BFLOAT16 = 16


def describe() -> Description:
    """What `onnxproof backends` prints."""
    providers = ", ".join(p.removesuffix("ExecutionProvider") for p in onnxruntime.get_available_providers())
    return Description(name="ort", about="ONNX Runtime, the runtime that most models are served on", installed=True,
                       version=onnxruntime.__version__, device=providers, install="pip install onnxruntime",
                       limits="levels: ort:disabled, ort:basic, ort:extended, ort:all; providers: ort:cuda and so on")


def open(model: Path | bytes, option: str = "", *, disabled_optimizers: Sequence[str] = (), outputs: Sequence[str] | None = None) -> "OrtSession":
    """Open a file (or a serialized model) at a level or on a provider."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = _LEVELS.get(option, _LEVELS["all"])
    providers = ["CPUExecutionProvider"] if option in ("", *_LEVELS) else [_provider(option)]
    if providers != ["CPUExecutionProvider"]:  # a provider that silently falls back to the CPU proves nothing
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        session = onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), options, providers=providers,
                                               disabled_optimizers=list(disabled_optimizers) or None)
    except Exception as why:  # onnxruntime raises a dozen unrelated classes; each becomes one of ours with its words
        raise _explain(model, str(why)) from why
    return OrtSession(session, outputs)


class OrtSession:
    """An InferenceSession that answers by name and refuses in one way."""

    def __init__(self, session: onnxruntime.InferenceSession, outputs: Sequence[str] | None = None) -> None:
        self._session = session
        self.input_names: Sequence[str] = [i.name for i in session.get_inputs()]
        self.output_names: Sequence[str] = list(outputs or (o.name for o in session.get_outputs()))

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any] | None]:
        """The outputs for these arrays; bfloat16 goes in and out by its bits."""
        try:
            if any(a.dtype == ml_dtypes.bfloat16 for a in inputs.values()) or self._has_bfloat16():
                return self._run_by_value(inputs)
            found = self._session.run(list(self.output_names), dict(inputs))
        except Exception as why:  # see open()
            raise Refused("refused", f"onnxruntime refuses this input: {_short(str(why))}") from why
        return [np.asarray(value) if value is not None else None for value in found]

    def close(self) -> None:
        """Let the native session go."""
        del self._session

    def _has_bfloat16(self) -> bool:
        return any("bfloat16" in o.type for o in self._session.get_outputs())

    def _run_by_value(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any] | None]:
        values = {}
        for name, array in inputs.items():
            if array.dtype == ml_dtypes.bfloat16:
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(np.ascontiguousarray(array).view(np.uint16), _ONNX_BFLOAT16)
            else:
                values[name] = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        found = self._session.run_with_ort_values(list(self.output_names), values)
        return [_from_value(value) for value in found]


def _from_value(value: onnxruntime.OrtValue) -> np.ndarray[Any, Any]:
    if "bfloat16" not in value.data_type():
        return np.asarray(value.numpy())
    import torch  # numpy has no bfloat16, and dlpack is the one way out of an OrtValue for it

    tensor = torch.utils.dlpack.from_dlpack(value._ortvalue.to_dlpack())
    return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)


def _provider(option: str) -> str:
    wanted = option.lower().replace("-", "").replace("_", "")
    known = {p.removesuffix("ExecutionProvider").lower(): p for p in onnxruntime.get_all_providers()}
    if wanted not in known:
        raise UsageError("unknown-provider", f"`ort:{option}` is neither a level nor a provider of onnxruntime",
                         notes=[f"levels are {', '.join(_LEVELS)}", f"providers are {', '.join(sorted(known))}"])
    if known[wanted] not in onnxruntime.get_available_providers():
        raise BackendMissing("provider-missing", f"onnxruntime {onnxruntime.__version__} here has no {known[wanted]}",
                             notes=[f"it has {', '.join(onnxruntime.get_available_providers())}"],
                             help="install the onnxruntime build that carries it (onnxruntime-gpu, onnxruntime-openvino, ...)")
    return str(known[wanted])


def _explain(model: Path | bytes, why: str) -> ModelError:
    where = "" if isinstance(model, bytes) else str(model)
    text = _short(why)
    if "Could not find an implementation" in why or "is not a registered function/op" in why or "No Op registered" in why:
        return ModelError("missing-operator", f"onnxruntime {onnxruntime.__version__} lacks an operator of this model", where=where,
                          notes=[text], help="export with another opset, or try `--backend reference`, or another version of the runtime")
    if "opset" in why or "IR version" in why or "ir_version" in why:
        return ModelError("opset-too-new", f"onnxruntime {onnxruntime.__version__} can't read a model this new", where=where, notes=[text],
                          help="export with a lower opset_version, or install a newer onnxruntime")
    return ModelError("model-refused", "onnxruntime can't open this model", where=where, notes=[text])


def _short(why: str) -> str:
    text = " ".join(why.replace("[ONNXRuntimeError]", "").split())
    return text if len(text) < 400 else text[:400] + " ..."
