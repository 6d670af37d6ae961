"""A runtime in a process of its own, from the parent's side: requests, limits, and what killed it.

The child is told on its command line where the two shared files are. It answers on standard output with lines that
begin with `MARK`, first a greeting and then one for each request; whatever else it prints there or on standard error
is kept as its last words.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from onnxproof import errors
from onnxproof.errors import BackendError, Crashed, OnnxproofError, Refused
from onnxproof.options import Serving
from onnxproof.results import Finding
from onnxproof.runtimes.isolation.shared_arrays import Arena
from onnxproof.runtimes.session import observed_run
from onnxproof.runtimes.session.observed_run import ObservedRun
from onnxproof.system import guard, temporary

Array = np.ndarray[Any, Any]
MARK = "\x1eonnxproof "
_POLL_S = 0.05
LAUNCH: tuple[str, ...] = ()
if os.name == "posix":
    LAUNCH = (sys.executable, "-I", "-S", str(Path(__file__).with_name("launcher.py")))
"""A process between us and the runtime, which contains what the runtime does to its parent and what it leaves behind."""
_STARTS = 3
"""Times that a runtime is started again after it died: what kills it three times kills it always."""
_DYING_S = 30.0
"""A process that crashed may take a while to be gone: its memory is given back, or written down, first."""
_TELLING = ("panicked", "error", "fatal", "terminate", "what()", "assert", "abort", "exception")
_SIGNALS = {
    "SIGSEGV": ("crashed", "died of a segmentation fault"),
    "SIGBUS": ("crashed", "died of a bus error"),
    "SIGABRT": ("aborted", "aborted"),
    "SIGILL": ("crashed", "died of an illegal instruction"),
    "SIGFPE": ("crashed", "died of an arithmetic fault"),
    "SIGKILL": ("killed", "was killed: the system ran out of memory, or somebody ended it"),
    "SIGTERM": ("killed", "was ended by somebody"),
}


class ChildSession:
    """A session whose runtime lives in a child process; a child that died is started again, a few times."""

    def __init__(
        self,
        backend: str,
        command: Sequence[str],
        serving: Serving,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self._command = list(command)
        self._serving = serving
        if environment is None:
            environment = os.environ
        self._environment = dict(environment)
        self._folder = temporary.Folder(in_memory=True)
        self._scratch = temporary.Folder()
        # A child that is killed leaves its files behind, and here they are found.
        self._environment["TMPDIR"] = self._scratch.name
        self._child: _Child | None = None
        self._deaths: list[Crashed] = []
        try:
            hello = self._start()
        except BaseException:
            self.close()
            raise
        self.input_names: Sequence[str] = hello["inputs"]
        self.output_names: Sequence[str] = hello["outputs"]
        self.findings: Sequence[Finding] = [
            Finding(**finding) for finding in hello.get("findings", ())
        ]

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """The outputs; a dead or silent child becomes `Crashed` with its last words."""
        return self.run_observed(inputs).outputs

    def run_observed(self, inputs: Mapping[str, Array]) -> ObservedRun:
        """The same with the child's own time, and with what it says of its inputs."""
        if self._child is None:
            if len(self._deaths) >= _STARTS:
                last = self._deaths[-1]
                raise Crashed(
                    last.code,
                    f"{last.what} (it died {len(self._deaths)} times and is not started again)",
                    notes=last.notes,
                )
            self._start()
        assert self._child is not None
        slots = self._given.put(inputs)
        answer = self._ask({"inputs": slots}, self._serving.time_s)
        # Views of the shared file: the next run writes over them, so that they are copied here.
        outputs = [
            None if view is None else np.array(view)
            for view in self._answers.view(answer["outputs"])
        ]
        # JavaScript works on copies, and compares them there; others work on the shared file.
        overwritten = answer.get("overwritten")
        if overwritten is None:
            shared = dict(zip(inputs, self._given.view(slots), strict=True))
            overwritten = observed_run.overwritten(inputs, shared)
        return ObservedRun(
            outputs=outputs, seconds=answer["seconds"], overwritten=tuple(overwritten)
        )

    def close(self) -> None:
        """End the child and remove what it left."""
        if self._child is not None:
            self._child.end()
            self._child = None
        temporary.end_processes(
            self._scratch.path
        )  # a runtime's own children may have left its group
        self._folder.cleanup()
        self._scratch.cleanup()

    def _start(self) -> dict[str, Any]:
        folder = Path(self._folder.name)
        self._given = Arena(folder / "inputs")
        self._answers = Arena(folder / "outputs")
        self._child = _Child(
            [*self._command, self._folder.name],
            self._environment,
            folder / "words",
            _memory_limit(self._serving),
        )
        return self._ask(None, self._serving.open_s)

    def _ask(self, request: Mapping[str, Any] | None, limit_s: float) -> dict[str, Any]:
        assert self._child is not None
        try:
            answer = self._child.ask(request, limit_s)
        except _Dead as why:
            self._child = None
            self._deaths.append(Crashed(why.code, f"`{self._backend}` {why}", notes=why.words))
            raise self._deaths[-1] from None
        if "error" in answer:
            if request is None:
                self._child.end()
                self._child = None
            raise _rebuild_error(answer["error"])
        return answer


class _Dead(Exception):
    """The child is gone: how, and what it said last."""

    def __init__(self, code: str, how: str, words: Sequence[str]) -> None:
        self.code = code
        self.words = list(words[-5:])
        telling = [line for line in words if any(word in line.lower() for word in _TELLING)]
        last = (telling or list(words) or [""])[-1]
        if last:
            how = f"{how}: {last}"
        super().__init__(how)


class _Child:
    """The process: it is started, gets requests, is kept within its limits, and is ended."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        words: Path,
        memory: int,
    ) -> None:
        self._words = words
        self._memory = memory
        with words.open("wb") as errors_to:
            self._process = subprocess.Popen(
                [*LAUNCH, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors_to,
                env=dict(environment),
                start_new_session=os.name == "posix",
                encoding="utf-8",
                errors="replace",
            )
        self._said: deque[str] = deque(maxlen=20)
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    def ask(self, request: Mapping[str, Any] | None, limit_s: float) -> dict[str, Any]:
        """Send a request (None: only wait for the greeting) and wait for the answer, within the limits."""
        if request is not None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            except OSError:
                raise self._death() from None
        deadline = time.monotonic() + limit_s
        while True:
            try:
                answer = self._inbox.get(timeout=_POLL_S)
            except queue.Empty:
                self._check(deadline, limit_s)
                continue
            if answer is None:
                raise self._death()
            return answer

    def end(self) -> None:
        """Kill it with all that it started."""
        with suppress(OSError):  # it is gone already
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError, AttributeError):  # a request that nobody read
                stream.close()  # type: ignore[union-attr]

    def _listen(self, stream: IO[str]) -> None:
        with suppress(ValueError):  # closed while we read: we ended it ourselves
            for line in stream:
                before, mark, rest = line.partition(MARK)
                if before.strip():
                    self._said.append(before.strip())
                if mark:
                    self._inbox.put(json.loads(rest))
        self._inbox.put(None)

    def _check(self, deadline: float, limit_s: float) -> None:
        held = resident(self._process.pid)
        if held > self._memory:
            self.end()
            raise _Dead(
                "out-of-memory",
                f"took {held / 1e9:.1f} GB of memory, the limit is {self._memory / 1e9:g} GB, and was ended",
                self._last(),
            )
        if time.monotonic() > deadline:
            self.end()
            raise _Dead("hung", f"gave no answer within {limit_s:g} s and was ended", self._last())

    def _death(self) -> _Dead:
        try:
            code = self._process.wait(timeout=_DYING_S)
        except subprocess.TimeoutExpired:
            self.end()
            return _Dead("hung", "closed its output and went on", self._last())
        self.end()
        kind, how = describe_end(code)
        return _Dead(kind, how, self._last())

    def _last(self) -> list[str]:
        lines: list[str] = []
        if self._words.is_file():
            lines = self._words.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line.strip()[:300] for line in [*self._said, *lines] if line.strip()]
        # What follows "Fatal Python error" is our own stack, which tells nothing of the runtime.
        own = [place for place, line in enumerate(said) if line.startswith("Fatal Python error")]
        if own:
            return said[: own[0]] or said[:1]
        return said


def describe_end(code: int) -> tuple[str, str]:
    """How a process ended, as a code and in words; a signal is a negative number."""
    if code >= 0:
        return "exited", f"ended by itself with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    name = names.get(-code, f"signal {-code}")
    kind, how = _SIGNALS.get(name, ("crashed", "died"))
    return kind, f"{how} ({name})"


def _rebuild_error(error: Mapping[str, Any]) -> OnnxproofError:
    """The error as the child raised it, if its class is one of ours."""
    kind = getattr(errors, str(error.get("kind")), Refused)
    if not isinstance(kind, type) or not issubclass(kind, OnnxproofError):
        kind = BackendError
    return kind(
        error.get("code", "refused"),
        error.get("what", ""),
        where=error.get("where", ""),
        notes=error.get("notes", ()),
        help=error.get("help", ""),
    )


def _memory_limit(serving: Serving) -> int:
    if serving.memory_gb is None:
        return guard.most_bytes()
    return int(serving.memory_gb * 1e9)


def resident(pid: int) -> int:
    """Bytes that a process and its children hold; 0 where the system has no /proc."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    pages = int(fields[1]) - int(fields[2])  # what is shared with us is not its own
    own = pages * os.sysconf("SC_PAGE_SIZE")
    return own + sum(resident(int(child)) for child in children)
