"""The machine that a suite is run on, and the process that drives it."""

import os
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from onnxproof.errors import UsageError
from onnxproof.suite.records import Run
from onnxproof.system import guard


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes(memory_gb: float | None) -> int:
    """The limit that was given, or what one process may hold here."""
    return guard.most_bytes() if memory_gb is None else int(memory_gb * 1e9)


def memory_gb() -> float:
    """Of the machine, or of the container."""
    return round(guard.most_bytes() / 0.75 / 1e9, 1)


def commit(folder: Path) -> str | None:
    """The commit that is checked out around the manifest; None where there is no git."""
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return told.stdout.strip() or None
    return None


def this_process() -> dict[str, Any]:
    """What tells this process from any other, also from a later one of its number."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": _started(os.getpid())}


def _started(pid: int) -> str:
    """When a process began, in the system's own ticks; empty where it is not there, or dead and not yet waited for."""
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if fields[0] not in ("Z", "X"):
            return fields[19]
    return ""


def refuse_if_alive(unfinished: Run, me: Mapping[str, Any]) -> None:
    """No two drivers on one run: each would write what the other has."""
    driver = unfinished.options.get("driver", {})
    alive = driver.get("since") and _started(int(driver["pid"])) == driver["since"]
    if alive and driver["host"] == me["host"] and driver["pid"] != me["pid"]:
        raise UsageError(
            "busy",
            f"this suite is being run already, by process {driver['pid']}",
            help="wait for it, or use another --history",
        )
