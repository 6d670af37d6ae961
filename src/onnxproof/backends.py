"""The name of version 0.1 for `onnxproof.runtimes`: runtimes of other packages still import from here."""

from onnxproof.runtimes import Description, Session, current, installed_version

__all__ = ["Description", "Session", "current", "installed_version"]
