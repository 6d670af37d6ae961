"""Where a proof was made: versions and hardware."""

import platform
import time
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
    for package in ("onnxproof", "torch", "onnx", "onnxruntime", "onnxscript", "numpy", "openvino"):
        try:
            facts[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
