"""A worker: a process that imports torch once, and forks one process for each model, which may do to itself what it likes.

Run as `python -m onnxproof.suite.worker`. Requests come as lines of JSON on standard input: a job to run, or `stop` to end the one that runs.
Answers go to standard output as lines that begin with `MARK`; the first says that it is ready. What a model prints goes through a pipe of its
own, of which the end is kept: its last words.

1. The worker runs no operator of torch, so that it has no threads that a fork would lack.
2. The model's process is a session of its own, with its own folder for temporary files. It writes its answer to a file, whole or not at all.
3. Whatever ends it (itself, a signal, the limits below), the worker lives, kills what the model started and left, and says how it ended.
"""

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from onnxproof import registry
from onnxproof.runtimes.isolation import launcher
from onnxproof.runtimes.isolation.child import resident
from onnxproof.suite.job import Job

MARK = "\x1eonnxproof-suite "
ANSWER = "answer.json"
EARLY = "early.json"
"""The answer before it is explained: what counts where the process does not come to its end."""
_LOOK_EVERY_S = 0.1
"""Seconds between two looks at the memory. A process fills about 2 GB a second: not measured on other machines."""
_KEPT = 16_384
"""Bytes of what a model printed last."""
_TORCH = ("torch", "torch.fx", "onnx", "onnxruntime", "onnxproof.api", "onnxproof.packages")
_EXPORT = ("torch._dynamo", "torch.export", "onnxscript", "onnxproof.exporter.export")
_SUITE = ("onnxproof.suite.dependencies", "onnxproof.suite.doing", "onnxproof.report.writers.json")
_PLUGINS = (
    "onnxproof.inputs.generators",
    "onnxproof.reference",
    "onnxproof.reference.loaders",
    "onnxproof.verification",
)
"""Packages whose every file a verification may import."""


def main() -> None:
    """Serve until standard input ends."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launcher.prctl(launcher.SET_SUBREAPER, 1)
    replies = os.dup(1)
    os.dup2(2, 1)  # what an import prints is no answer
    sys.path += [folder for folder in settings["search"] if folder not in sys.path]
    _preload(settings["preload"], settings["doings"])
    gc.freeze()
    _say(replies, {"ready": True, "own": resident(os.getpid())})
    requests = _Lines(0)
    while (request := requests.next()) is not None:
        if "job" in request:
            _say(replies, _run(request, requests, replies))


def _preload(packages: Sequence[str], doings: Sequence[str]) -> None:
    """Import what most models need; what is missing here is missed by the model that needs it."""
    names = [*_TORCH, *_SUITE, *_submodules(_PLUGINS)]
    if "export" in doings or "quantize" in doings:
        names += _EXPORT
    for name in (*names, *packages):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    registry.points("")  # reads every installed package, once for all models


def _submodules(packages: Sequence[str]) -> Iterator[str]:
    import pkgutil

    for package in packages:
        folder = Path(importlib.import_module(package).__path__[0])
        yield from (f"{package}.{info.name}" for info in pkgutil.iter_modules([str(folder)]))


class _Lines:
    """Lines of JSON from a pipe, one by one, without reading what is not there yet."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._buffer = b""
        self.closed = False

    def next(self, *, wait: bool = True) -> dict[str, Any] | None:
        """The next one; None at the end, or where there is none yet."""
        while b"\n" not in self._buffer:
            if self.closed or (not wait and not select.select([self.descriptor], [], [], 0)[0]):
                return None
            piece = os.read(self.descriptor, 1 << 16)
            self.closed = not piece
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        request: dict[str, Any] = json.loads(line)
        return request


def _say(descriptor: int, message: Mapping[str, Any]) -> None:
    data = f"{MARK}{json.dumps(message)}\n".encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _run(request: Mapping[str, Any], requests: _Lines, replies: int) -> dict[str, Any]:
    """One model in a process of its own, watched; says how that ended."""
    job, scratch = Job(**request["job"]), Path(request["scratch"])
    words, printed = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        for mine in (words, replies):
            os.close(mine)
        _become_model(job, scratch, printed)
    os.close(printed)
    watch = _Watch(child, job, words)
    try:
        watch.until_end(requests)
    finally:
        os.close(words)
    return {
        "name": job.name,
        "status": watch.status,
        "ended": watch.reason,
        "words": watch.words.decode("utf-8", "replace"),
        "peak": watch.peak,
        "seconds": time.monotonic() - begun,
    }


class _Watch:
    """The worker's eye on the process of a model."""

    def __init__(self, child: int, job: Job, words: int) -> None:
        self._child, self._job, self._pipe = child, job, words
        self.words = b""
        self.status = 0
        """As `subprocess` has it: a signal is a negative number."""
        self.reason = ""
        """Why it was ended from here."""
        self.peak = 0

    def until_end(self, requests: _Lines) -> None:
        """Wait, within the limits; then nothing of it is left."""
        os.set_blocking(self._pipe, False)
        deadline = time.monotonic() + self._job.limit_s
        handle = _process_handle(self._child)
        watched = [fd for fd in (handle, self._pipe, requests.descriptor) if fd is not None]
        try:
            while not self._has_ended():
                ready = select.select(watched, [], [], _LOOK_EVERY_S)[0]
                if self._pipe in ready and not self._read():
                    watched.remove(self._pipe)
                self._check(deadline)
                if requests.descriptor in ready:
                    self._obey(requests)
                    if requests.closed:
                        watched.remove(requests.descriptor)
        finally:
            if handle is not None:
                os.close(handle)
        with contextlib.suppress(OSError):
            os.killpg(self._child, signal.SIGKILL)
        launcher.end_descendants()
        self._read()

    def _has_ended(self) -> bool:
        ended, status = os.waitpid(self._child, os.WNOHANG)
        if ended:
            self.status = os.waitstatus_to_exitcode(status)
        return bool(ended)

    def _read(self) -> bool:
        """What was printed since; False where nothing more will come."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._pipe, 1 << 16):
                self.words = (self.words + piece)[-_KEPT:]
            return False
        return True

    def _obey(self, requests: _Lines) -> None:
        while (request := requests.next(wait=False)) is not None:
            if "stop" in request:
                self._end(str(request["stop"]))
        if requests.closed:
            self._end("whoever asked has gone")

    def _check(self, deadline: float) -> None:
        held = resident(self._child)
        self.peak = max(self.peak, held)
        if self._job.memory and held > self._job.memory:
            limit = self._job.memory / 1e9
            words = f"the model took {held / 1e9:.2f} GB of memory, the limit is {limit:.3g} GB"
            self._end(f"error[out-of-memory]: {words}")
        if time.monotonic() > deadline:
            limit = self._job.limit_s
            self._end(f"error[hung]: no verdict within the time limit of {limit:g} s")

    def _end(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason
            with contextlib.suppress(OSError):
                os.kill(self._child, signal.SIGKILL)


def _process_handle(child: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the system has none."""
    try:
        return os.pidfd_open(child)
    except (AttributeError, OSError):
        return None


def _become_model(job: Job, scratch: Path, printed: int) -> NoReturn:
    """The life of the forked process: it never comes back from here."""
    code = 1
    try:
        _let_go(printed)
        _write_answer(_answer(job, scratch), scratch / ANSWER)
        code = 0
    except (
        BaseException
    ) as why:  # whatever a model raises, SystemExit too, is the end of its process alone
        with contextlib.suppress(BaseException):
            _say_what_was_raised(why)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _write_answer(answer: Mapping[str, Any], path: Path) -> None:
    draft = path.with_name("draft.json")
    draft.write_text(json.dumps(answer), encoding="utf-8")
    draft.rename(path)


def _say_what_was_raised(why: BaseException) -> None:
    """The exception, and the last line of the user's own code before it."""
    from onnxproof.reference.user_code import user_line

    place = user_line(why, "")
    if not place:
        traceback.print_exception(why)
        return
    sys.stderr.write(f"{place}: {''.join(traceback.format_exception_only(why))}")


def _let_go(printed: int) -> None:
    """Out of the worker's session, streams and signals."""
    os.setsid()
    launcher.prctl(launcher.SET_DEATH_SIGNAL, signal.SIGKILL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, printed), (2, printed)):
        os.dup2(source, target)
    os.close(printed)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 for as long as it lives
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="replace", closefd=False, buffering=1
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(all_threads=False)
    with contextlib.suppress(OSError):  # when memory runs out, it is this process that goes
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(job: Job, scratch: Path) -> dict[str, Any]:
    from onnxproof.suite import dependencies, doing

    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    os.chdir(job.folder)
    _set_threads(job.cores)
    before = set(sys.modules)
    begun = time.process_time()
    with dependencies.observed() as files:
        # what native code does to this process later can't change what is kept here
        def keep(early: Mapping[str, Any]) -> None:
            depends = dependencies.hashed(files, before, job, scratch)
            _write_answer({**early, "depends": depends}, scratch / EARLY)

        answer = doing.execute(job, scratch, keep)
    ended = time.process_time()
    depends = dependencies.hashed(files, before, job, scratch)
    # What this process did beside its command, for `make bench-suite`.
    beside_s = begun + time.process_time() - ended
    return answer | {"depends": depends, "beside_s": beside_s}


def _set_threads(cores: int) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(cores)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(cores)


if __name__ == "__main__":
    main()
