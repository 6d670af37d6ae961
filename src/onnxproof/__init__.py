"""onnxproof proves that an ONNX model still says what its PyTorch model says.

The names below are loaded when they are first used: `import onnxproof` loads neither torch nor onnx.
"""

import importlib
from typing import TYPE_CHECKING, Any

_WHERE = {
    "verify": "prove", "diff": "prove", "Progress": "prove",
    "export": "exporter",
    "inspect": "inspecting", "Inspection": "inspecting",
    "quantize": "quantizing", "Budget": "quantizing", "Quantized": "quantizing",
    "Proof": "proof",
    "Subject": "subject",
    "Case": "types", "Cause": "types", "Domain": "types", "ExportOptions": "types", "ExportRecord": "types", "Finding": "types", "Fix": "types", "Gap": "types", "Location": "types", "Note": "types",
    "Policy": "types", "Serving": "types", "Signature": "types", "Source": "types", "Stage": "types", "Verdict": "types",
    "OnnxproofError": "errors", "VerdictError": "errors",
}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - the mapping above is the one list of public names

if TYPE_CHECKING:
    from onnxproof.errors import OnnxproofError, VerdictError
    from onnxproof.exporter import export
    from onnxproof.inspecting import Inspection, inspect
    from onnxproof.proof import Proof
    from onnxproof.prove import Progress, diff, verify
    from onnxproof.quantizing import Budget, Quantized, quantize
    from onnxproof.subject import Subject
    from onnxproof.types import (
        Case,
        Cause,
        Domain,
        ExportOptions,
        ExportRecord,
        Finding,
        Fix,
        Gap,
        Location,
        Note,
        Policy,
        Serving,
        Signature,
        Source,
        Stage,
        Verdict,
    )


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'onnxproof' has no attribute {name!r}")
    return getattr(importlib.import_module(f"onnxproof.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
