"""Another onnxruntime in a virtual environment of its own, made on demand: `ort@1.23.2`, `ort@1.23.2:basic`, `ort@onnxruntime-gpu:cuda`."""

import os
import re
import shutil
import subprocess
import sys
import venv
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from onnxproof.errors import BackendError, UsageError
from onnxproof.runtimes import Description, current
from onnxproof.runtimes.isolation.session import IsolatedSession
from onnxproof.runtimes.session import download_cache
from onnxproof.system import temporary, writing

OWN_PROCESS = True
_NEEDED = ("ml_dtypes",)
"""What the `ort` adapter imports besides onnxruntime, which brings numpy."""
_PATIENCE_S = 900
"""Seconds that pip has. Not measured."""


def describe() -> Description:
    """What `onnxproof backends` prints."""
    folders = download_cache.folder("ort").glob("*")
    versions = sorted(folder.name for folder in folders if _is_ready(folder))
    return Description(
        name="ort-at",
        about="another version or build of onnxruntime: ort@1.23.2, ort@1.23.2:basic, ort@onnxruntime-gpu:cuda",
        installed=True,
        version=", ".join(versions),
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
    """The interpreter of the virtual environment with this onnxruntime; a half-made one is made again."""
    major, minor = sys.version_info[:2]
    name = requirement.replace("==", "-")
    folder = download_cache.folder("ort", f"{name}-py{major}{minor}")
    python = _python_of(folder)
    if _is_ready(folder) and python.exists():
        return python
    with writing.explain_write_errors(folder, "the virtual environment"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary.Draft(folder.parent) as draft:
            _install(requirement, draft.new)
            # Otherwise another run was quicker, and its environment is as good.
            if not _is_ready(folder):
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    draft.new.rename(folder)
    return python


def _is_ready(folder: Path) -> bool:
    return (folder / ".ready").is_file()


def _python_of(folder: Path) -> Path:
    programs = "Scripts" if os.name == "nt" else "bin"
    return folder / programs / "python"


def _install(requirement: str, folder: Path) -> None:
    """Make the environment; its `bin/python` still works where it is moved to."""
    venv.create(folder, with_pip=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = ("--quiet", "--disable-pip-version-check")
    packages = (requirement, *map(_same_version, _NEEDED))
    try:
        with temporary.Folder() as work:
            done = subprocess.run(
                [_python_of(folder), "-m", "pip", "install", *options, *packages],
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
                check=False,
                env=variables | {"TMPDIR": str(work)},
            )
    except subprocess.TimeoutExpired:
        raise BackendError(
            "no-environment",
            f"pip did not install {requirement} within {_PATIENCE_S} s",
            help="try again, or a mirror that is near",
        ) from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise BackendError(
            "no-environment",
            f"pip can't install {requirement}",
            notes=(said or done.stderr.splitlines())[-2:],
            help=f"`pip index versions {requirement.partition('==')[0]}` tells which versions there are for Python {sys.version_info[0]}.{sys.version_info[1]}",
        )
    (folder / ".ready").touch()


def _same_version(package: str) -> str:
    """The version that we run ourselves, since it writes and reads the same bytes."""
    return f"{package}=={metadata.version(package)}"
