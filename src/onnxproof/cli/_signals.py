"""SIGTERM and a closed terminal are handled as Ctrl-C: an interrupt in the main thread, so that everything on its way out is cleaned up.

Native code holds an interrupt up until it returns, and a destructor may swallow it. So a thread watches, too: a second signal, or a
main thread that is still there after `PATIENCE_S`, ends the process at once, with everything removed that it had made for itself.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

PATIENCE_S = 20.0
"""Time to write down what was measured, which takes seconds; a service manager kills after 30 to 90."""
_ONCE_S = 1.0
"""Signals that come so soon after the first count as one: a shell and its job both get it."""
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class Interrupted(KeyboardInterrupt):
    """A class of our own: Python notes a plain one that ends an `exec` of a string (every dataclass is made by one), and after it ends by SIGINT, though it was caught."""


@contextmanager
def handled(leave: Callable[[], None]) -> Iterator[None]:
    """Within this, the signals interrupt; `leave` is called from the watching thread and must not come back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if not seen:  # a second one would interrupt the cleaning up
            seen = True
            raise Interrupted

    numbers = _numbers()
    inbox, outbox = os.pipe()
    os.set_blocking(outbox, False)
    before = {number: signal.signal(number, stop) for number in numbers}
    waker = signal.set_wakeup_fd(outbox, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(inbox, numbers, leave), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(waker)
        with suppress(OSError):
            os.write(outbox, b"\0")
        watcher.join()
        os.close(inbox)
        os.close(outbox)


def _numbers() -> list[signal.Signals]:
    """Those that nobody ignores (nohup) or handles (whoever calls us from Python): they stay theirs."""
    known = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    return [n for n in known if signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)]


def _watch(inbox: int, numbers: list[signal.Signals], leave: Callable[[], None]) -> None:
    first: float | None = None
    while True:
        timeout = None
        if first is not None:
            timeout = max(first + PATIENCE_S - time.monotonic(), 0.0)
        ready, _, _ = select.select([inbox], [], [], timeout)
        if not ready:
            leave()
            continue
        received = os.read(inbox, 1)
        if received == b"\0":
            return
        if received[0] not in numbers:
            continue
        if first is None:
            first = time.monotonic()
        elif time.monotonic() - first > _ONCE_S:
            leave()


def end_with(code: int) -> None:
    """From here on a signal ends the process with this code: all is done, and Python takes a while to end."""
    for number in _numbers():
        signal.signal(number, lambda *_: os._exit(code))


def leave_at_once(message: str, code: int) -> None:
    """Say it, remove what this process made for itself, and end without unwinding."""
    from onnxproof.system import temporary

    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(message + "\n")
        sys.stderr.flush()
    with suppress(OSError):
        temporary.clear()
    os._exit(code)
