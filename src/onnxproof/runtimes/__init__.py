"""One file a runtime: the file's name is its key, and nothing is imported until it is chosen.

A backend is a module (or an entry point of the group `onnxproof.backends`) with a function `open(model, option)` that
returns a `Session`, and a function `describe()` that says whether it is installed. `ort:basic` passes `basic` as the
option, `ort@1.23.2:basic` opens `ort-at` with all that stands behind the @. It runs in a process of its own unless it
says `IN_PROCESS = True`. `onnxproof.testing.conformance` is the kit any backend must pass.
"""

import importlib.metadata
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from onnxproof.errors import BackendError, BackendMissing, PluginError, UsageError
from onnxproof.options import Serving
from onnxproof.registry import Registry

ENTRY_POINTS = "onnxproof.backends"
_registered: dict[str, "BackendModule"] = {}
"""Backends put here while a test runs, by `onnxproof.testing.fake_backend`."""
_serving: ContextVar[Serving] = ContextVar("onnxproof-serving", default=Serving())  # noqa: B039 it is frozen


@runtime_checkable
class Session(Protocol):
    """An opened model: give it arrays by name, and it answers with its outputs in order.

    A session may also have `findings`, a sequence of `Finding`: what the user should know of how it was opened.
    """

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


def installed_version(package: str) -> str:
    """The version of an installed package, without importing it; empty when it isn't there."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


class Described(Protocol):
    """What everything that is listed defines; the reference is listed, and opens no file."""

    def describe(self) -> Description: ...  # noqa: D102


class BackendModule(Described, Protocol):
    """What the file of a runtime defines."""

    def open(self, model: Path, option: str) -> Session: ...  # noqa: D102


RUNTIMES: Registry[BackendModule] = Registry(
    "backend",
    __name__,
    Described,
    group=ENTRY_POINTS,
    help="`onnxproof backends` lists them; outsiders register one by an entry point",
)


def names() -> list[str]:
    """Every backend that can be asked for, ours first."""
    return RUNTIMES.names()


def parse(name: str) -> tuple[str, str]:
    """The key and the option in a backend's name.

    >>> parse("ort:basic"), parse("ort@1.23.2:basic"), parse("openvino")
    (('ort', 'basic'), ('ort-at', '1.23.2:basic'), ('openvino', ''))
    """
    head, _, option = name.partition(":")
    key, at, _ = head.partition("@")
    if at:
        return f"{key}-at", name.partition("@")[2]
    return key, option


def load(name: str) -> BackendModule:
    """The module behind `ort`, `ort:basic` or an outsider's name; it is imported here and not before."""
    key, _ = parse(name)
    if key in _registered:
        return _registered[key]
    try:
        return RUNTIMES.load(key)
    except PluginError as why:
        raise BackendError(why.code, why.what, notes=why.notes, help=why.help) from why
    except ImportError as why:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{key}` needs a package that isn't installed: {why.name or why}",
            help=f"pip install 'onnxproof[{key}]'",
        ) from why


def require(name: str) -> BackendModule:
    """The backend's module, if what it needs is installed; otherwise an error with the command that installs it."""
    module = load(name)
    if not hasattr(module, "open"):
        raise UsageError(
            "not-a-runtime",
            f"`{name}` runs a Python module, not an ONNX file",
            help="it is the reference by itself; choose a runtime from `onnxproof backends`",
        )
    described = describe(name)
    if not described.installed:
        raise BackendMissing(
            "backend-missing",
            f"the backend `{described.name}` isn't installed",
            help=described.install,
        )
    return module


def describe(name: str) -> Description:
    """What the backend says of itself; one of another package that raises, or says something else, is told as broken."""
    module = load(name)
    try:
        description = module.describe()
    except BackendMissing:
        raise
    except (Exception, SystemExit) as why:
        raise _broken(parse(name)[0], why) from why
    if not isinstance(description, Description):
        kind = type(description).__name__
        raise _broken(parse(name)[0], TypeError(f"`describe()` gave a {kind} and no Description"))
    return description


def _broken(key: str, why: BaseException) -> BackendError:
    return BackendError(
        "backend-broken",
        f"the backend `{key}` is broken: {type(why).__name__}: {why}",
        help="mend it, or remove the package that registers it",
    )


def open_session(name: str, model: Path, serving: Serving | None = None) -> Session:
    """Open `model` on a backend such as `ort:basic`, in a process of its own where it may crash, as `serving` (or the current one) says."""
    wanted = serving or _serving.get()
    module = require(name)
    if is_isolated(name, wanted):
        from onnxproof.runtimes.isolation.session import IsolatedSession

        return IsolatedSession(name, model, wanted)
    with use_serving(wanted):
        return module.open(model, parse(name)[1])


def is_isolated(name: str, serving: Serving) -> bool:
    """True when this backend gets a process of its own; a test's fake lives in this process only."""
    if parse(name)[0] in _registered or serving.isolate is False:
        return False
    module = load(name)
    if getattr(module, "OWN_PROCESS", False):
        return False
    return serving.isolate is True or not getattr(module, "IN_PROCESS", False)


@contextmanager
def use_serving(serving: Serving | None) -> Iterator[None]:
    """Make `serving` the current one for a while; None leaves it as it is."""
    token = _serving.set(serving or _serving.get())
    try:
        yield
    finally:
        _serving.reset(token)


def current() -> Serving:
    """How the session that is being opened shall be run: an adapter asks for threads and for forgiveness here.

    Where nobody asked for a number of threads it is that of `OMP_NUM_THREADS`, which PyTorch heeds too. On a machine of two busy
    cores a verification of a small model took 1.2 to 2.5 times the processor time where ONNX Runtime's idle threads spin.
    """
    serving = _serving.get()
    given = os.environ.get("OMP_NUM_THREADS", "")
    if serving.threads is None and given.isdecimal() and int(given):
        return replace(serving, threads=int(given))
    return serving
