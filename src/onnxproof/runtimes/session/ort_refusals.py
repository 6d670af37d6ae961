"""What ONNX Runtime says when it refuses, as an error of ours."""

import re
from pathlib import Path

import onnxruntime

from onnxproof.errors import ModelError, Refused

_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")
"""What stands before every message: a number and its name tell a user nothing."""
_NO_MEMORY = ("Failed to allocate memory", "bad allocation", "std::bad_alloc", "bad_alloc")
_NO_OPERATOR = (
    "Could not find an implementation",
    "is not a registered function/op",
    "No Op registered",
)


def explain_refused_model(model: Path | bytes, why: str) -> ModelError:
    """Why a model was not opened, from the runtime's words."""
    where = "" if isinstance(model, bytes) else str(model)
    text = _short(why)
    if any(words in why for words in _NO_OPERATOR):
        return ModelError(
            "missing-operator",
            f"onnxruntime {onnxruntime.__version__} lacks an operator of this model",
            where=where,
            notes=[text],
            help="export with another opset, or try `--backend reference`, or another version of the runtime",
        )
    if "opset" in why or "IR version" in why or "ir_version" in why:
        return ModelError(
            "opset-too-new",
            f"onnxruntime {onnxruntime.__version__} can't read a model this new",
            where=where,
            notes=[text],
            help="export with a lower opset_version, or install a newer onnxruntime",
        )
    return ModelError(
        "model-refused",
        "onnxruntime can't open this model",
        where=where,
        notes=[text],
    )


def explain_refused_run(why: str) -> Refused:
    """Why a run was refused, from the runtime's words."""
    if any(words in why for words in _NO_MEMORY):
        return Refused(
            "out-of-memory", f"onnxruntime would need more memory than there is: {_short(why)}"
        )
    return Refused("refused", f"onnxruntime refuses this input: {_short(why)}")


def _short(why: str) -> str:
    text = _STATUS.sub("", " ".join(why.split()))
    return text if len(text) < 400 else text[:400] + " ..."
