"""The folder for what is made on demand: virtual environments and npm packages."""

import os
import sys
from pathlib import Path


def folder(*parts: str) -> Path:
    """A folder below `ONNXPROOF_CACHE`, or below the user's own cache folder."""
    chosen = os.environ.get("ONNXPROOF_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute().joinpath(*parts)
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(
            os.environ.get("XDG_CACHE_HOME")
            or os.environ.get("LOCALAPPDATA")
            or Path.home() / ".cache"
        )
    return base.joinpath("onnxproof", *parts)
