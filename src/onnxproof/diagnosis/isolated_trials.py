"""Trials in a process that may crash, hang or eat memory: its death ends one trial and nothing else.

A hypothesis calls native operators with arguments that nobody tested, and works on live objects: the user's module, traced
values, closures. So the process is a fork (`system/forked_process.py`). It goes on from one trial to the next, and keeps what
they share; after a death another fork does the rest. Where a fork is not safe, trials run in this process.
"""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onnxproof.diagnosis import limits
from onnxproof.system.deadline import Deadline
from onnxproof.system.forked_process import (
    ForkedProcess,
    ProcessDied,
    TaskRaised,
    describe_error,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Task = Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Generic[T_co]):
    """A trial that gave a result."""

    name: str
    value: T_co


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A trial that raised, or that ended its process."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotStarted:
    """A trial for which no time was left."""

    name: str


def run(
    trials: Mapping[str, Callable[[], T]], deadline: Deadline, *, pass_s: float = 0.0
) -> Generator[Finished[T] | Failed | NotStarted, None, None]:
    """The outcome of each trial, in order; the next one starts when it is asked for. Results must be picklable; `pass_s` is what a forward pass takes.

    Close the iterator where it is left early (`contextlib.closing`): the process ends with it.
    """
    process = None
    tasks = list(trials.values())
    try:
        for place, name in enumerate(trials):
            if deadline.passed:
                yield NotStarted(name=name)
                continue
            process = process or _open_process(tasks)
            try:
                outcome: Finished[T] | Failed = Finished(
                    name=name, value=process.ask(place, time_limit(deadline, pass_s))
                )
            except TaskRaised as why:
                outcome = Failed(name=name, reason=str(why))
            except ProcessDied as why:
                process = None
                outcome = Failed(name=name, reason=str(why))
            except BaseException:  # Ctrl-C: it is in the midst of a trial, and nobody waits for it
                process.kill()
                raise
            yield outcome
    finally:
        if process is not None:
            process.end()


def time_limit(deadline: Deadline, pass_s: float = 0.0) -> float:
    """Seconds after which a trial is ended."""
    least = max(limits.TRIAL_LEAST_S, limits.TRIAL_LEAST_PASSES * pass_s)
    share = max(least, limits.TRIAL_SHARE * deadline.left)
    return min(limits.TRIAL_MOST_S, share)


def obstacle() -> str:
    """Why trials must run in this process; empty where a fork is safe."""
    from onnxproof.runtimes import ort

    if sys.platform != "linux":
        return f"{sys.platform} has no fork that native libraries survive"
    if ort.opened_devices:
        return f"onnxruntime has opened {', '.join(sorted(ort.opened_devices))}"
    torch = sys.modules.get("torch")
    for device in ("cuda", "xpu"):
        module = getattr(torch, device, None)
        if module is not None and module.is_initialized():
            return f"torch has opened {device}"
    return ""


class _ThisProcess:
    """Where a fork is not safe: the tasks are called as they are."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def ask(self, place: int, limit_s: float) -> Any:
        """What the task returns; there is nobody to end it after a limit."""
        try:
            return self._tasks[place]()
        except (Exception, SystemExit) as why:
            raise TaskRaised(describe_error(why)) from why

    def kill(self) -> None:
        """Nothing: it lives as long as the caller."""

    end = kill


def _open_process(tasks: Sequence[Task]) -> ForkedProcess | _ThisProcess:
    """A fork, or this process where none is safe or the system gives none."""
    if obstacle():
        return _ThisProcess(tasks)
    try:
        return ForkedProcess(tasks)
    except OSError:  # no more processes, or no memory for one
        return _ThisProcess(tasks)
