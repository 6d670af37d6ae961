"""One call in a process of its own: forked from one that has everything imported, bounded in time and memory."""

import contextlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MEMORY = 6 << 30
"""Bytes that may be written to. Address space is no measure: the engine that draws charts reserves terabytes of it without touching them."""
CPU_S = 20.0
"""Processor seconds: three times what the slowest sound call took (6.5 s, an LSTM explained)."""
WALL_S = 90.0
"""The same by the clock, for a call that waits for what never comes; machines are shared."""
_POLL_S = 0.01
_OUTPUT = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a call ended, and what it said."""

    code: int | None
    """None where it was ended by a signal."""
    signal: str = ""
    hang: bool = False
    seconds: float = 0.0
    out: str = ""
    err: str = ""


def call(work: Callable[[], int], folder: Path) -> Ended:
    """Fork, run, wait; whatever is left of its process group is killed."""
    sys.stdout.flush()
    sys.stderr.flush()
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        _inside(work, folder)
    status, seconds, hang = _wait(child, start)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    name = signal.Signals(-code).name if code < 0 and not hang else ""
    return Ended(
        code=code if code >= 0 else None,
        signal=name,
        hang=hang,
        seconds=seconds,
        out=_text(folder / "stdout"),
        err=_text(folder / "stderr"),
    )


def _inside(work: Callable[[], int], folder: Path) -> None:
    """The child: never returns."""
    code = 99
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["TMPDIR"] = str(folder)
        os.chdir(folder)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(code if 0 <= code < 128 else 98)


def _wait(child: int, start: float) -> tuple[int, float, bool]:
    hang = False
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return status, used.ru_utime + used.ru_stime, hang
        wall = time.perf_counter() - start
        if not hang and (wall > WALL_S or (wall > CPU_S and _cpu(child) > CPU_S)):
            hang = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(_POLL_S)


def _cpu(child: int) -> float:
    """Seconds of the process and of those children that it has waited for."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(value) for value in fields[11:15]) / float(os.sysconf("SC_CLK_TCK"))


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as stream:
        return stream.read(_OUTPUT).decode(errors="replace")
