"""Where a file comes from: versions and the commit of the source, for its metadata."""

import subprocess
from importlib import metadata

_PACKAGES = ("onnxproof", "torch", "onnxscript")


def origin() -> dict[str, str]:
    """Versions of the packages that wrote the file, and the commit of the current folder, if there is one."""
    entries = {}
    for package in _PACKAGES:
        version = _version(package)
        if version:
            entries[f"onnxproof.version.{package}"] = version
    commit = _git("rev-parse", "HEAD")
    if commit:
        if _git("status", "--porcelain", "--untracked-files=no"):
            commit += "-dirty"
        entries["onnxproof.commit"] = commit
    return entries


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _git(*arguments: str) -> str:
    """The output of git; empty if it fails."""
    try:
        result = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    if result.returncode != 0:
        return ""
    return result.stdout.strip()
