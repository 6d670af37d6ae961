"""Virtual environments that are made on demand, in the cache folder: another version of a package beside the one that runs here."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from onnxproof.errors import BackendError
from onnxproof.runtimes.session import download_cache
from onnxproof.system import temporary, writing

_PATIENCE_S = 900
"""Seconds that pip has. Not measured."""


def environment(kind: str, requirement: str, beside: Sequence[str] = ()) -> Path:
    """The interpreter of the environment with this package and those beside it; a half-made one is made again."""
    major, minor = sys.version_info[:2]
    name = requirement.replace("==", "-")
    folder = download_cache.folder(kind, f"{name}-py{major}{minor}")
    python = _python_of(folder)
    if is_ready(folder) and python.exists():
        return python
    with writing.explain_write_errors(folder, "the virtual environment"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with temporary.Draft(folder.parent) as draft:
            _install(requirement, beside, draft.new)
            # Otherwise another run was quicker, and its environment is as good.
            if not is_ready(folder):
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):
                    draft.new.rename(folder)
    return python


def ready(kind: str) -> list[str]:
    """The environments of a kind that are there."""
    folders = download_cache.folder(kind).glob("*")
    return sorted(folder.name for folder in folders if is_ready(folder))


def same_version(package: str) -> str:
    """The version that we run ourselves, since it writes and reads the same bytes."""
    return f"{package}=={metadata.version(package)}"


def is_ready(folder: Path) -> bool:
    """Whether pip has finished there."""
    return (folder / ".ready").is_file()


def _python_of(folder: Path) -> Path:
    programs = "Scripts" if os.name == "nt" else "bin"
    return folder / programs / "python"


def _install(requirement: str, beside: Sequence[str], folder: Path) -> None:
    """Make the environment; its `bin/python` still works where it is moved to."""
    venv.create(folder, with_pip=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    options = ("--quiet", "--disable-pip-version-check")
    try:
        with temporary.Folder() as work:
            done = subprocess.run(
                [_python_of(folder), "-m", "pip", "install", *options, requirement, *beside],
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
