"""The one guard around every run of a graph that came from a file: a limit of time and a limit of memory, in this process.

Time: the work is done by a thread, and whoever waits for it waits no longer than the limit. Then the runtime is asked to stop
(ONNX Runtime looks between two nodes and between two turns of a Loop). A thread that does not come back is left behind: it
ends with the process, its session is not used again, and the caller goes on. Native code that holds the GIL could not be left
so; ONNX Runtime (runs and session creation) and numpy's long operations release it.

Memory: while the work runs, the process may not map more private memory than the machine has to give (`RLIMIT_DATA`, on Linux).
An allocation beyond that fails at once as an exception of the runtime or a MemoryError, where otherwise the system would end
the process in the midst of filling it.

Measured on a busy machine of two cores: 20 to 54 microseconds for a run of a tiny graph alone, 143 to 164 guarded.
"""

import atexit
import contextvars
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from onnxproof.errors import Crashed

T = TypeVar("T")
GRACE_S = 2.0
"""Seconds that a runtime has to stop when it is told to: a node of a healthy model takes less."""
_STACK = 64 << 20
"""Bytes of stack: onnx and ONNX Runtime recurse into functions and subgraphs, and some systems give threads 128 kB."""
_SHARE = 0.75
"""Of the machine's memory that this process may hold. Not measured."""
_LEAST = 256 << 20
"""Bytes that a run may take in any case: a machine that is nearly full still runs a small model."""
_FRESH_S = 0.25
"""Seconds for which a measurement of the memory is believed: reading it costs as much as the rest of the guard."""


class _Task:
    """One piece of work, and the place for what comes of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._context = contextvars.copy_context()
        self._answer: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            self._answer.put((self._context.run(self._work), None))
        except BaseException as why:  # whatever it is, it belongs to the thread that waits
            self._answer.put((None, why))

    @property
    def ended(self) -> bool:
        """Whether the answer is there, and nobody took it."""
        return not self._answer.empty()

    def wait(self, seconds: float) -> tuple[Any, BaseException | None] | None:
        """The result and the error; None when neither came in time."""
        try:
            return self._answer.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return None


class _Worker:
    """A thread that works off tasks, one at a time."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        before = threading.stack_size(_STACK)
        try:
            self.thread = threading.Thread(target=self._serve, name="onnxproof-guard", daemon=True)
            self.thread.start()
        finally:
            threading.stack_size(before)

    def start(self, work: Callable[[], Any]) -> _Task:
        task = _Task(work)
        self._tasks.put(task)
        return task

    def _serve(self) -> None:
        while True:
            self._tasks.get().run()


_idle: list[_Worker] = []
_left_behind: list[tuple[_Worker, _Task]] = []
"""Work that did not come back; while there is any, there is a limit of memory."""
_usual: tuple[int, int] | None = None
"""The limit before the first of them."""


def run(
    work: Callable[[], T],
    *,
    limit_s: float,
    what: str,
    stop: Callable[[], None] | None = None,
    memory_gb: float | None = None,
) -> T:
    """What `work` returns or raises; `Crashed` with the code `hung` when it takes longer than the limit.

    `stop` asks the work to end early. `memory_gb` is how much more this process may hold meanwhile. `what` begins the sentence that is told: "`ort` gave no answer within 4 s ...".
    """
    worker = _idle.pop() if _idle else _Worker()
    with memory(memory_gb):
        task = worker.start(work)
        try:
            answer = task.wait(limit_s)
            hung = answer is None
            if answer is None:
                answer = _stop(task, stop)
        except BaseException:  # Ctrl-C while it ran
            _left_behind.append((worker, task))
            if stop is not None:
                stop()
            raise
        if answer is None:
            _left_behind.append((worker, task))
        else:
            _idle.append(worker)
        if hung:
            raise _hung(what, limit_s, stopped=answer is not None)
    assert answer is not None
    result, error = answer
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _hung(what: str, limit_s: float, *, stopped: bool) -> Crashed:
    ending, notes = "stopped", []
    if not stopped:
        ending = "left behind"
        notes = [
            "it did not stop when it was told to, and goes on in the background until this program ends"
        ]
    return Crashed(
        "hung",
        f"{what} gave no answer within {limit_s:.3g} s and was {ending}",
        notes=notes,
        help="`--time-limit` gives one forward pass more time",
    )


def leave(code: int) -> None:
    """End the program at once where a thread was left behind: the interpreter would end it in the midst of native code, which may abort."""
    _reuse_ended_threads()
    if _left_behind:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed, or its reader has left
                stream.flush()
        atexit._run_exitfuncs()
        os._exit(code)


def _reuse_ended_threads() -> None:
    """Give the threads whose work has ended after all something else to do."""
    _idle.extend(worker for worker, task in _left_behind if task.ended)
    _left_behind[:] = [(worker, task) for worker, task in _left_behind if not task.ended]


def _stop(task: _Task, stop: Callable[[], None] | None) -> tuple[Any, BaseException | None] | None:
    """Tell it to stop, and wait a little; None when it goes on."""
    if stop is not None:
        stop()
    return task.wait(GRACE_S)


@contextmanager
def memory(most_gb: float | None = None) -> Iterator[None]:
    """While this lasts, an allocation beyond what the machine can give (or beyond this much more) fails instead of ending the process; on Linux."""
    before = _lower_limit(most_gb)
    try:
        yield
    finally:
        _restore_limit(before)


def _restore_limit(before: tuple[int, int] | None) -> None:
    """Set the limit as it was; while a thread goes on in the background, the limit of the whole machine, since nobody waits for that thread's memory."""
    global _usual
    _reuse_ended_threads()
    if _left_behind:
        ceiling = _ceiling(None)
        if before is not None and ceiling is not None:
            _usual = _usual or before
            _set_limit((ceiling, before[1]))
    elif _usual is not None:
        _set_limit(_usual)
        _usual = None
    elif before is not None:
        _set_limit(before)


def _lower_limit(most_gb: float | None) -> tuple[int, int] | None:
    """Set the limit, and give the one before; None where there is none to set, or a lower one is set already."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    soft, hard = before
    ceiling = _ceiling(most_gb)
    if ceiling is None:
        return None
    if soft != resource.RLIM_INFINITY and soft <= ceiling:
        return None
    if hard != resource.RLIM_INFINITY and hard < ceiling:
        return None
    _set_limit((ceiling, hard))
    return before


def _set_limit(limit: tuple[int, int]) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, limit)


_ceilings: dict[float | None, tuple[float, int | None]] = {}


def _ceiling(most_gb: float | None) -> int | None:
    """Bytes of private memory up to which this process may grow; measured anew every quarter of a second."""
    measured, ceiling = _ceilings.get(most_gb, (float("-inf"), None))
    if time.monotonic() - measured > _FRESH_S:
        ceiling = _measure_ceiling(most_gb)
        _ceilings[most_gb] = time.monotonic(), ceiling
    return ceiling


def _measure_ceiling(most_gb: float | None) -> int | None:
    try:
        fields = [int(word) for word in Path("/proc/self/statm").read_text().split()]
        page = os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):  # not Linux
        return None
    resident = (fields[1] - fields[2]) * page
    private = fields[5] * page
    more = most_bytes() - resident if most_gb is None else int(most_gb * 1e9)
    return private + max(_LEAST, min(more, available_bytes()))


@cache
def most_bytes() -> int:
    """Bytes that one process may hold: three quarters of the machine's memory, or of the container's."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):  # not a POSIX system
        return 1 << 62
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(place).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return int(_SHARE * total)


def available_bytes() -> int:
    """Bytes that the system can give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")
        )
    except (OSError, ValueError, StopIteration):
        return 1 << 62


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_idle.clear)
    os.register_at_fork(after_in_child=_left_behind.clear)
