"""onnxproof proves that an ONNX model still matches its PyTorch model.

The names below are loaded when they are first used: `import onnxproof` loads neither torch nor onnx.
"""

import importlib
from typing import TYPE_CHECKING, Any

_NAMES = {
    "api": ("diff", "explain", "export", "inspect", "mend", "quantize", "replay", "verify"),
    "verification.progress": ("Progress",),
    "inspection": ("Inspection",),
    "quantization.result": ("Quantized",),
    "quantization.tuning_state": ("Budget",),
    "reference.subject": ("Subject",),
    "results.proof": ("Proof",),
    "results": (
        "Case",
        "Cause",
        "Domain",
        "ExportRecord",
        "Finding",
        "Fix",
        "Gap",
        "Location",
        "Note",
        "Signature",
        "Source",
        "Stage",
        "Verdict",
    ),
    "options": (
        "BundleOptions",
        "ExportOptions",
        "Input",
        "Policy",
        "QuantizeOptions",
        "ReplayOptions",
        "Serving",
        "VerifyOptions",
    ),
    "errors": ("OnnxproofError", "VerdictError"),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_WHERE)  # noqa: PLE0605 - the mapping above is the one list of public names

if TYPE_CHECKING:
    __version__: str
    from onnxproof.api import diff, explain, export, inspect, mend, quantize, replay, verify
    from onnxproof.errors import OnnxproofError, VerdictError
    from onnxproof.inspection import Inspection
    from onnxproof.options import (
        BundleOptions,
        ExportOptions,
        Input,
        Policy,
        QuantizeOptions,
        ReplayOptions,
        Serving,
        VerifyOptions,
    )
    from onnxproof.quantization.result import Quantized
    from onnxproof.quantization.tuning_state import Budget
    from onnxproof.reference.subject import Subject
    from onnxproof.results import (
        Case,
        Cause,
        Domain,
        ExportRecord,
        Finding,
        Fix,
        Gap,
        Location,
        Note,
        Signature,
        Source,
        Stage,
        Verdict,
    )
    from onnxproof.results.proof import Proof
    from onnxproof.verification.progress import Progress


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _WHERE:
        raise AttributeError(f"module 'onnxproof' has no attribute {name!r}")
    return getattr(importlib.import_module(f"onnxproof.{_WHERE[name]}"), name)


def _version() -> str:
    """The version that is installed; `0+unknown` where the source tree is run without being installed."""
    from importlib import metadata

    try:
        return metadata.version("onnxproof")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, "__version__"])
