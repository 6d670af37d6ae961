"""One exception tree; each message says what went wrong, where, the facts, and what to do.

OnnxproofError
├── UsageError            the call's words are off (also a ValueError)
│   ├── SubjectError      the reference can't be loaded: no such file, a factory that raises, a pickle
│   ├── InputError        inputs that don't fit: names, dtypes, shapes, data files
│   └── PolicyError       thresholds that make no sense
├── ModelError            the ONNX file: not ONNX, truncated, external data missing, opset too new
├── BackendError          a runtime could not do its work
│   ├── BackendMissing    not installed, with the pip command (also an ImportError)
│   ├── Refused           this model or input is refused by the runtime
│   └── Crashed           the runtime's process died or ran out of time
├── ExportError           torch could not export the module
├── PluginError           a plug-in of another package can't be loaded, or lacks something
└── VerdictError          raise_for_verdict: the proof is not good enough (also an AssertionError)

Stopped                   Ctrl-C (a KeyboardInterrupt), with the proof of what was measured until then
"""

from collections.abc import Sequence
from typing import Any

from onnxproof.system.text import lines


class OnnxproofError(Exception):
    """Base of all errors that onnxproof raises on purpose.

    >>> print(OnnxproofError("input-missing", "the model has no input named `q`", where="m.onnx", notes=["it has `x`"], help="rename it"))
    error[input-missing]: the model has no input named `q`
      --> m.onnx
      = note: it has `x`
      = help: rename it
    """

    def __init__(
        self, code: str, what: str, *, where: str = "", notes: Sequence[str] = (), help: str = ""
    ) -> None:
        self.code, self.what, self.where = code, what, where
        self.notes, self.help = tuple(notes), help
        super().__init__(self.render())

    def render(self) -> str:
        """The message as it is printed: error, place, notes, help."""
        message = [f"error[{self.code}]: {self.what}"]
        if self.where:
            message.append(f"  --> {self.where}")
        message += [f"  = note: {note}" for note in self.notes]
        if self.help:
            message.append(f"  = help: {self.help}")
        return "\n".join(map(lines, message))


class UsageError(OnnxproofError, ValueError):
    """The call's words are off."""


class SubjectError(UsageError):
    """The reference can't be loaded."""


class InputError(UsageError):
    """Inputs that don't fit the models."""


class PolicyError(UsageError):
    """Thresholds that make no sense."""


class ModelError(OnnxproofError):
    """The ONNX file can't be used."""


class BackendError(OnnxproofError):
    """A runtime could not do its work."""


class BackendMissing(BackendError, ImportError):
    """The runtime is not installed."""


class Refused(BackendError):
    """The runtime refuses this model or this input."""


class Crashed(BackendError):
    """The runtime's process died or ran out of time."""


class ExportError(OnnxproofError):
    """torch could not export the module."""


class PluginError(OnnxproofError):
    """A plug-in can't be loaded, or lacks something."""


class Stopped(KeyboardInterrupt):
    """The user stopped the run; `proof` holds what was measured until then, and is no verdict unless all cases had been run."""

    def __init__(self, proof: Any) -> None:
        self.proof = proof
        super().__init__("stopped by the user")


class VerdictError(OnnxproofError, AssertionError):
    """The proof is not good enough."""
