"""A backend in a process of its own: a crash, an abort or a hang there is a finding here, and nothing else is lost.

Run as `python -m onnxproof.backends._apart BACKEND MODEL`: each line of standard input names a .npz with the inputs;
the answer is a .npz beside it, or one line with the refusal.
"""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import Crashed, Refused

Array = np.ndarray[Any, Any]
_LIMIT_S = 60.0


class ApartSession:
    """A session whose runtime lives in a child process; the child is started at the first run and again after a crash."""

    def __init__(self, backend: str, model: Path, input_names: Sequence[str], output_names: Sequence[str], *, limit_s: float = _LIMIT_S) -> None:
        self._command = [sys.executable, "-m", "onnxproof.backends._apart", backend, str(model)]
        self.input_names, self.output_names = input_names, output_names
        self._limit_s = limit_s
        self._child: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="onnxproof-")

    def run(self, inputs: Mapping[str, Array]) -> list[Array | None]:
        """Send the arrays, wait for the answer; a dead or silent child becomes `Crashed` with its last words."""
        request = Path(self._folder.name) / "inputs.npz"
        arrays: dict[str, Any] = dict(inputs)
        np.savez(request, **arrays)
        child = self._start()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(f"{request}\n")
            child.stdin.flush()
            answer = _readline(child, self._limit_s)
        except (BrokenPipeError, TimeoutError) as why:
            raise self._dead("did not answer in time" if isinstance(why, TimeoutError) else "died") from why
        if not answer:
            raise self._dead("died")
        if answer.startswith("refused "):
            raise Refused("refused", answer.removeprefix("refused ").strip())
        with np.load(answer.strip(), allow_pickle=False) as archive:
            return [archive[f"output{k}"] if f"output{k}" in archive.files else None for k in range(len(self.output_names))]

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None
        self._folder.cleanup()

    def _start(self) -> subprocess.Popen[str]:
        if self._child is None:
            self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self._child

    def _dead(self, how: str) -> Crashed:
        child, self._child = self._child, None
        assert child is not None
        child.kill()
        words = (child.communicate()[1] or "").strip().splitlines()
        code = child.returncode
        return Crashed("crashed", f"the runtime {how}" + (f" (signal {-code})" if code and code < 0 and how == "died" else "")
                       + (f": {words[-1]}" if words else ""), notes=words[-3:])


def _readline(child: "subprocess.Popen[str]", limit_s: float) -> str:
    import selectors

    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(limit_s):
            raise TimeoutError
    return child.stdout.readline()


def _serve(backend: str, model: Path) -> None:
    """The child's side: one answer for each line."""
    from onnxproof.backends import open_session
    from onnxproof.errors import OnnxproofError

    session = open_session(backend, model)
    for line in sys.stdin:
        request = Path(line.strip())
        with np.load(request, allow_pickle=False) as archive:
            inputs = {name: archive[name] for name in archive.files}
        try:
            outputs = session.run(inputs)
        except OnnxproofError as why:
            print("refused " + why.what.replace("\n", " "), flush=True)
            continue
        answer = request.with_name("outputs.npz")
        arrays: dict[str, Any] = {f"output{k}": output for k, output in enumerate(outputs) if output is not None}
        np.savez(answer, **arrays)
        print(answer, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
