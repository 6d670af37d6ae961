"""A fork of this process that works off tasks: it has every live object, and whatever it does to itself stays there (Linux).

Tasks are known before the fork, since closures and modules can't be sent; what they return comes back pickled. The fork does one
task when it is asked to, so that it never works on what nobody wants any more.

What a fork does not have, and what follows from that:

1. The threads of its parent. The OpenMP pool that torch made in the parent's thread would be waited for without end, so that
   tasks run in a new thread, which gets a pool of its own. Measured with torch 2.13 on two cores, after the parent had used both:
   convolutions, an encoder, an LSTM, float64 products and a new session of ONNX Runtime hung in 2 of 2 forks without this thread,
   and in none of 100 with it.
2. Sessions of ONNX Runtime that can be run or closed: `runtimes.ort` opens them anew, and garbage of the parent is never
   collected here (`gc.freeze`), since closing a session waits for its threads.
3. A right to the parent's terminal, signals and files: output goes nowhere, Ctrl-C is the parent's, and the fork leaves by
   `os._exit`, without the parent's way out. It ends with its parent, however that ends.
"""

import contextlib
import ctypes
import faulthandler
import gc
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from onnxproof.system import guard, temporary

_SET_DEATH_SIGNAL = 1
"""Of prctl(2)."""
_LOOK_EVERY_S = 0.5
"""Seconds between two looks at whether it still lives, for one whose end can't be seen: a process that it started may hold its
pipe open. Not measured."""
_ENDING_S = 2.0
"""Seconds that it has to end by itself. Not measured."""
_PAUSE_S = 0.001
"""Seconds between two looks while it ends. Not measured."""
_LOST_PIPE = 119
"""Its exit code when it can't answer any more."""
Task = Callable[[], Any]


class TaskRaised(Exception):
    """The task raised; its process can do another."""


class ProcessDied(Exception):
    """The process is gone: how."""


class ForkedProcess:
    """The fork, from the parent's side."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Fork now; an OSError where the system refuses."""
        _flush_output()
        prctl = ctypes.CDLL(None).prctl  # looked up here: the fork may find the loader's lock taken
        self._status: int | None = None
        self._pipe, other = Pipe()
        try:
            with _block_signals(), warnings.catch_warnings():
                # Python 3.12 warns of threads, which are dealt with as above
                warnings.simplefilter("ignore", DeprecationWarning)
                self._id = os.fork()
                if self._id == 0:
                    prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
                    self._pipe.close()
                    _serve(tasks, other)
        except OSError:
            self._pipe.close()
            raise
        finally:
            other.close()

    def ask(self, place: int, limit_s: float) -> Any:
        """What the task at this place returns; TaskRaised where it raises, ProcessDied where that is its end."""
        try:
            self._pipe.send_bytes(str(place).encode())
            self._wait(limit_s)
            returned, value = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError):
            raise ProcessDied(self._describe_end()) from None
        if returned:
            return value
        raise TaskRaised(value)

    def end(self) -> None:
        """End it, and remove what it left behind; an idle one ends by itself when its pipe does."""
        self._pipe.close()
        self._kill()

    def kill(self) -> None:
        """End it at once, in the midst of a task."""
        self._kill(grace_s=0.0)

    def _wait(self, limit_s: float) -> None:
        """Until there is an answer, or the end of the pipe."""
        deadline = time.monotonic() + limit_s
        while not self._pipe.poll(max(0.0, min(_LOOK_EVERY_S, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                self.kill()
                raise ProcessDied(f"gave no answer within {limit_s:.3g} s and was ended")
            if self._has_ended(0.0):
                raise EOFError

    def _describe_end(self) -> str:
        """How it ended, after its pipe did."""
        ended = self._has_ended(_ENDING_S)
        self.kill()
        if not ended or self._status is None:
            return "closed its pipe and was ended"
        if os.WIFSIGNALED(self._status):
            return f"ended its process ({_signal_name(os.WTERMSIG(self._status))})"
        code = os.WEXITSTATUS(self._status)
        if code == _LOST_PIPE:
            return "closed its pipe"
        return f"ended its process (exit code {code})"

    def _has_ended(self, limit_s: float) -> bool:
        """Whether it has ended within so long; then it is no longer known to the system."""
        deadline = time.monotonic() + limit_s
        while self._id:
            try:
                ended, status = os.waitpid(self._id, os.WNOHANG)
            except ChildProcessError:  # somebody else waits for all children of this process
                ended, status = self._id, None
            if ended:
                self._id, self._status = 0, status
            elif time.monotonic() >= deadline:
                return False
            else:
                time.sleep(_PAUSE_S)
        return True

    def _kill(self, grace_s: float = _ENDING_S) -> None:
        if not self._has_ended(grace_s):
            os.kill(self._id, signal.SIGKILL)
            self._has_ended(float("inf"))
        self._pipe.close()
        if self._status != 0:  # one that ends by itself removes its own folders
            temporary.sweep()


def _serve(tasks: Sequence[Task], pipe: "Connection[Any, Any]") -> NoReturn:
    """The fork's life: a task for each number that comes, until the parent closes the pipe."""
    code = 1
    try:
        _become_child()
        while True:
            pipe.send_bytes(_run(tasks[int(pipe.recv_bytes())]))
    except EOFError:
        code = 0
    except OSError:
        code = _LOST_PIPE
    finally:
        with contextlib.suppress(BaseException):
            temporary.clear()
        os._exit(code)


def _run(task: Task) -> bytes:
    """The pickled answer: whether it returned, and what, or what it raised in words."""
    try:
        value = guard.run(task, limit_s=float("inf"), what="a task")
        return pickle.dumps((True, value))
    except BaseException as why:  # SystemExit too: a task must not end its process
        return pickle.dumps((False, describe_error(why)))


def describe_error(why: BaseException) -> str:
    """An exception in one line."""
    return f"could not be tried: {type(why).__name__}: {why}"


def _become_child() -> None:
    """Let go of what is the parent's; see 2 and 3 above."""
    import resource  # a POSIX system's: this module is imported elsewhere, too

    gc.freeze()
    faulthandler.disable()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _blocked())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 for as long as it lives
    sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 as above
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # when memory runs out, it is this process that goes
        Path("/proc/self/oom_score_adj").write_text("1000")


def _flush_output() -> None:
    """Or the fork would have what is still to be written, too."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


@contextlib.contextmanager
def _block_signals() -> Iterator[None]:
    """No interrupt between the fork and the first line of the child: there it would unwind into the parent's code."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _blocked())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _blocked() -> tuple[signal.Signals, ...]:
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def _signal_name(number: int) -> str:
    names = {known.value: known.name for known in signal.Signals}
    return names.get(number, f"signal {number}")
