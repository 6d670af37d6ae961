"""Where a file comes from: versions and the commit of the source, for its metadata."""

import subprocess
from importlib import metadata


def facts() -> dict[str, str]:
    """Versions of what made the file, and the commit of the folder it was made in, where there is one."""
    found = {
        f"onnxproof.version.{name}": version
        for name in ("onnxproof", "torch", "onnxscript")
        if (version := _version(name))
    }
    commit = _git("rev-parse", "HEAD")
    if commit:
        found["onnxproof.commit"] = commit + (
            "-dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
        )
    return found


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
