"""Another onnxruntime in a virtual environment of its own, made on demand: `ort@1.23.2`, `ort@1.23.2:basic`, `ort@onnxruntime-gpu:cuda`."""

import re
from pathlib import Path

from onnxproof.errors import UsageError
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.runtimes.session import virtual_environment

OWN_PROCESS = True
_NEEDED = ("ml_dtypes",)
"""What the `ort` adapter imports besides onnxruntime, which brings numpy."""


def describe() -> Description:
    """What `onnxproof backends` prints."""
    return Description(
        name="ort-at",
        about="another version or build of onnxruntime: ort@1.23.2, ort@1.23.2:basic, ort@onnxruntime-gpu:cuda",
        installed=True,
        version=", ".join(virtual_environment.ready("ort")),
        device="as the build",
        install="nothing: the virtual environment is made when it is asked for",
        limits="needs pip and its index the first time; apart",
    )


def open(model: Path, option: str = "") -> IsolatedSession:
    """Open a model on another onnxruntime; its environment is made the first time, which takes as long as pip does."""
    version, _, rest = option.partition(":")
    python = environment(requirement(version))
    backend = f"ort:{rest}" if rest else "ort"
    return IsolatedSession(backend, model, current(), name=f"ort@{option}", python=str(python))


def requirement(version: str) -> str:
    """What pip is asked for.

    >>> requirement("1.23.2"), requirement("onnxruntime-gpu==1.22.0")
    ('onnxruntime==1.23.2', 'onnxruntime-gpu==1.22.0')
    """
    if re.fullmatch(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)?", version):
        return f"onnxruntime=={version}"
    if re.fullmatch(r"(onnxruntime|ort)[a-z0-9._-]*(==[a-z0-9.+]+)?", version):
        return version
    raise UsageError(
        "bad-version",
        f"`ort@{version}` is neither a version of onnxruntime nor a build of it",
        help="write `ort@1.23.2`, or the name that pip knows: `ort@onnxruntime-openvino==1.24.1:openvino`",
    )


def environment(requirement: str) -> Path:
    """The interpreter of the virtual environment with this onnxruntime."""
    beside = [virtual_environment.same_version(package) for package in _NEEDED]
    return virtual_environment.environment("ort", requirement, beside)
