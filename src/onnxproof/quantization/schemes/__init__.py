"""One file a scheme: which types, and how the graph gets them. The file's name is its key; nothing is imported until it is chosen.

A scheme has `ABOUT`, and either `PLAN` (Q/DQ by ONNX Runtime's quantizer, open to every recipe) or `build(model, stats) -> onnx.ModelProto`.
"""

import importlib
import pkgutil
from types import ModuleType

from onnxproof.errors import UsageError


def names() -> list[str]:
    """Every scheme."""
    return [info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]


def load(name: str) -> ModuleType:
    """The scheme of that name."""
    if name not in names():
        raise UsageError(
            "unknown-scheme",
            f"there is no scheme `{name}`",
            notes=[f"known are {', '.join(names())}"],
        )
    return importlib.import_module(f"{__name__}.{name}")
