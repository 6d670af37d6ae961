"""A worker from the driver's side: it is started, gets jobs, tells how they ended, and is ended with all that it started."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onnxproof.runtimes.isolation.child import LAUNCH, describe_end, resident
from onnxproof.suite.job import Job, Outcome, Setting
from onnxproof.suite.worker import ANSWER, EARLY, MARK
from onnxproof.system import temporary

_START_S = 300.0
"""Seconds that a worker has to import what models need; 12 on a busy machine of two cores."""
_GRACE_S = 30.0
"""Seconds beyond a job's limit after which the worker itself counts as hung. Not measured."""
_LINES = 12
"""Last words that an error tells."""
_WIDEST = 300
_FATAL = "Fatal Python error"
_FRAMES = 4
"""Lines of Python's own stack after a crash, the innermost first: the others are ours."""


class Lost(Exception):
    """The worker is gone, and so is what it ran; that need not be the model's fault."""


class Worker:
    """One worker process, busy or not."""

    def __init__(self, setting: Setting) -> None:
        self._folder = temporary.Folder()
        self._words = self._folder.path / "words"
        self._count = 0
        self._buffer = b""
        self._since = time.monotonic()
        self._own = 0
        self.job: Job | None = None
        self.ready = False
        self.stopping = False
        self.attempt = 1
        settings = {name: list(getattr(setting, name)) for name in ("preload", "doings", "search")}
        command = [sys.executable, "-P", "-m", "onnxproof.suite.worker", json.dumps(settings)]
        with self._words.open("wb") as words:
            self._process = subprocess.Popen(
                [*LAUNCH, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                # A driver that is killed leaves its workers behind, and here the next one finds them.
                env={**os.environ, "TMPDIR": self._folder.name, "PYTHONPATH": _python_path()},
                start_new_session=True,
            )
        os.set_blocking(self.descriptor, False)

    @property
    def descriptor(self) -> int:
        """Readable when there is something to `receive`."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def free(self) -> bool:
        """Whether it can take a job now."""
        return self.ready and self.job is None

    @property
    def held(self) -> int:
        """Bytes that it holds: of a busy one those of its model, which shares the worker's own."""
        tree = resident(self._process.pid)
        return tree - self._own if self.job is not None else tree

    def start(self, job: Job, attempt: int) -> None:
        """Hand a job over."""
        self._count += 1
        scratch = self._scratch
        scratch.mkdir()
        self.job, self.attempt, self.stopping = job, attempt, False
        self._since = time.monotonic()
        self._send({"job": asdict(job), "scratch": str(scratch)})

    def stop(self, reason: str) -> None:
        """End the model that runs; the worker says that it ended so."""
        self.stopping = True
        self._send({"stop": reason})

    def receive(self) -> Outcome | None:
        """What has come: the outcome of the job, or nothing yet.

        Raises:
            Lost: the worker has ended.
        """
        outcome = None
        with suppress(BlockingIOError):
            while True:
                piece = os.read(self.descriptor, 1 << 16)
                if not piece:
                    raise Lost(self._describe_loss())
                self._buffer += piece
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            _, mark, rest = line.decode("utf-8", "replace").partition(MARK)
            if mark:
                outcome = self._take(json.loads(rest)) or outcome
        return outcome

    def check(self) -> None:
        """Raise `Lost` where it has not said a word for longer than it may."""
        waited = time.monotonic() - self._since
        if not self.ready and waited > _START_S:
            raise Lost(f"a worker was not ready within {_START_S:g} s: {self._last_words()}")
        if self.job is not None and waited > self.job.limit_s + _GRACE_S:
            raise Lost("a worker did not answer any more")

    def close(self) -> None:
        """End it with all that it started, and remove what it left."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]
        temporary.end_processes(self._folder.path)
        self._folder.cleanup()

    @property
    def _scratch(self) -> Path:
        return self._folder.path / str(self._count)

    def _take(self, message: Mapping[str, Any]) -> Outcome | None:
        if message.get("ready"):
            self.ready, self._own = True, message["own"]
            return None
        if self.job is None or message.get("name") != self.job.name:
            return None
        outcome = _outcome(message, self._scratch / ANSWER, self.job, self.attempt)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self.job = None
        return outcome

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone, which `receive` will say
            self._process.stdin.write(f"{json.dumps(message)}\n".encode())
            self._process.stdin.flush()

    def _describe_loss(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=10)
            return f"its worker {describe_end(code)[1]}\n{self._last_words()}".rstrip()
        return "its worker closed its output"

    def _last_words(self) -> str:
        with suppress(OSError):
            return last_words(self._words.read_text(encoding="utf-8", errors="replace"))
        return ""


def _killed_from_outside(message: Mapping[str, Any]) -> bool:
    """Whether a model's process was ended by a signal that it hardly sends itself, and not from here."""
    return message["status"] in (-signal.SIGKILL, -signal.SIGTERM) and not message["ended"]


def _outcome(message: Mapping[str, Any], answer: Path, job: Job, attempt: int) -> Outcome:
    measured = {name: message[name] for name in ("seconds", "peak")}
    measured |= {"job": job, "attempts": attempt}
    if message["status"] == 0 and answer.is_file():
        with suppress(ValueError, OSError):
            return Outcome(answer=json.loads(answer.read_text(encoding="utf-8")), **measured)
    early = None
    with suppress(ValueError, OSError):
        early = json.loads(answer.with_name(EARLY).read_text(encoding="utf-8"))
    failure = _describe(message)
    words = last_words(message["words"])
    if words:
        failure += f"\n  = note: its last words: {words}"
    return Outcome(
        answer=early,
        failure=failure,
        stopped=message["ended"],
        lost=_killed_from_outside(message),
        **measured,
    )


def _describe(message: Mapping[str, Any]) -> str:
    """How the process of a model ended, as the first line of an error."""
    if message["ended"]:
        return str(message["ended"])
    if message["status"] == 0:
        return "error[no-verdict]: the model's process ended without a verdict (exit code 0)"
    code, how = describe_end(message["status"])
    return f"error[{code}]: the model's process {how}"


def last_words(text: str) -> str:
    """The end of what a process printed; after a crash the stack's innermost frames, too. Lines are shortened."""
    lines = [line.rstrip()[:_WIDEST] for line in text.splitlines() if line.strip()]
    fatal = next((place for place, line in enumerate(lines) if line.startswith(_FATAL)), len(lines))
    return "\n".join([*lines[:fatal][-_LINES:], *lines[fatal:][: _FRAMES + 2]])


def _python_path() -> str:
    """What this process finds modules by, so that the worker runs the same onnxproof."""
    root = Path(__file__).resolve().parents[2]
    known = [os.environ.get("PYTHONPATH", "")]
    if root.name not in ("site-packages", "dist-packages"):
        known.insert(0, str(root))
    return os.pathsep.join(filter(None, known))
