"""One file a runtime: the file's name is its key, and nothing is imported until it is chosen.

A backend is a module (or an entry point of the group `onnxproof.backends`) with a function `open(model, options)` that
returns a `Session`, and a function `describe()` that says whether it is installed. `ort:basic` passes `basic` as the
option. `onnxproof.testing.conformance` is the kit any backend must pass.
"""

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onnxproof.errors import BackendMissing, UsageError

ENTRY_POINTS = "onnxproof.backends"
_registered: dict[str, "BackendModule"] = {}
"""Backends put here while a test runs, by `onnxproof.testing.fake_backend`."""


@runtime_checkable
class Session(Protocol):
    """An opened model: give it arrays by name, and it answers with its outputs in order."""

    input_names: Sequence[str]
    output_names: Sequence[str]

    def run(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any] | None]:
        """The outputs, in the order of `output_names`; None for an output that the model leaves out."""

    def close(self) -> None:
        """Let go of what the runtime holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What `onnxproof backends` prints of one backend."""

    name: str
    about: str
    installed: bool
    version: str = ""
    device: str = ""
    install: str = ""
    limits: str = ""


class BackendModule(Protocol):
    """What the file of a backend defines."""

    def open(self, model: Path, option: str) -> Session: ...  # noqa: D102

    def describe(self) -> Description: ...  # noqa: D102


def names() -> list[str]:
    """Every backend that can be asked for, ours first."""
    ours = [info.name.replace("_", "-") for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_")]
    return ours + sorted(point.name for point in importlib.metadata.entry_points(group=ENTRY_POINTS))


def load(name: str) -> BackendModule:
    """The module behind `ort`, `ort:basic` or an outsider's name; it is imported here and not before."""
    key = name.partition(":")[0]
    if key in _registered:
        return _registered[key]
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.name == key:
            return point.load()  # type: ignore[no-any-return]
    if key not in names():
        raise UsageError("unknown-backend", f"there is no backend `{key}`", notes=[f"known are {', '.join(names())}"],
                         help="`onnxproof backends` lists them; outsiders register one by an entry point")
    try:
        return importlib.import_module(f"{__name__}.{key.replace('-', '_')}")
    except ImportError as why:
        raise BackendMissing("backend-missing", f"the backend `{key}` needs a package that isn't installed: {why.name or why}",
                             help=f"pip install 'onnxproof[{key}]'") from why


def open_session(name: str, model: Path) -> Session:
    """Open `model` on a backend such as `ort:basic`."""
    return load(name).open(model, name.partition(":")[2])
