"""Where a proof was made: versions and hardware."""

import platform
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path


def environment() -> dict[str, str]:
    """Versions and hardware, so that two proofs can be told apart."""
    facts = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return facts | _versions()


@cache
def _versions() -> dict[str, str]:
    """Of the packages that answers depend on, as far as they are installed."""
    versions = {}
    for package in ("onnxproof", "torch", "onnx", "onnxruntime", "onnxscript", "numpy", "openvino"):
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
