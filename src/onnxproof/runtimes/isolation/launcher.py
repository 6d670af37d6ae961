"""A process between onnxproof and a runtime: it ends with whichever of the two ends first, and takes along all that the runtime started.

Run as a script with the runtime's command. It needs the standard library alone, and it imports little, since every session starts one.
The runtime's parent is this process: a signal that a runtime sends to its parent, or to its group, does not reach onnxproof. What the
runtime starts is handed to this process when the runtime dies (on Linux), also what has left its group, and is ended here.
"""

import os
import signal
import sys
import time

SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36
"""Numbers of prctl(2)."""
_IGNORED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGPIPE,
)
"""What a runtime may send to its parent."""
_LOOK_EVERY_S = 0.5
"""Seconds after which it is noticed that onnxproof has gone. Not measured."""
_ENDING_S = 5.0
"""Seconds for which descendants are killed. Not measured."""


def main(command: list[str]) -> None:
    """Start the command in this process's group and wait for the end of either side."""
    parent = os.getppid()
    prctl(SET_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        _become(command)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for stream in (0, 1):  # or the other end would wait for us
        os.close(stream)
    status = _wait(parent, child)
    end_descendants()
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _become(command: list[str]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    try:
        os.execvp(command[0], command)
    except OSError as why:
        sys.stderr.write(f"error: {command[0]}: {why.strerror}\n")
        sys.stderr.flush()
        os._exit(127)


def _wait(parent: int, child: int) -> int:
    """The runtime's status, or that of a success where it is onnxproof that has gone."""
    while os.getppid() == parent:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == child:
            return status
        if not ended:
            _pause()
    return 0


def _pause() -> None:
    if hasattr(signal, "sigtimedwait"):
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_EVERY_S)
    else:
        time.sleep(_LOOK_EVERY_S / 5)


def end_descendants() -> None:
    """Kill what is left below this process, again and again, since the children of a killed one become ours."""
    deadline = time.monotonic() + _ENDING_S
    while time.monotonic() < deadline:
        for child in _children():
            try:  # noqa: SIM105 contextlib is not worth its import here
                os.kill(child, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _children() -> list[int]:
    try:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _die_of(number: int) -> None:
    """End as the runtime did, so that its death can be told; without a second dump of memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def prctl(option: int, value: int) -> None:
    """One call of Linux; elsewhere nothing."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
