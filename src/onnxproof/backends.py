"""The name of version 0.1 for `onnxproof.runtimes`: runtimes of other packages still import from here."""

import importlib
from typing import Any

from onnxproof.runtimes import Description, Session, current, installed_version

__all__ = ["Description", "Session", "current", "installed_version"]


def __getattr__(name: str) -> Any:
    """One of our runtimes, such as `ort`, for a runtime that is built upon it."""
    try:
        return importlib.import_module(f"onnxproof.runtimes.{name}")
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
