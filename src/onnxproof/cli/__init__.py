"""One file a command: the file's name is the command, the first line of its docstring is its help, and `command` does it.

`onnxproof --help` must be quick, so it imports nothing: it reads those first lines. A command's file is imported when it
is asked for, and only then is typer.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_CODES = "exit codes: 0 faithful (or drift without --strict), 1 diverged (or drift with --strict), 2 error or bad usage, 3 nothing is proven"
STOPPED = "error[interrupted]: stopped by the user: there is no verdict"
_FIRST = ("verify", "export", "diff")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code."""
    own = words is None
    words = sys.argv[1:] if words is None else list(words)
    if not _open_streams():
        sys.stderr.write(
            "error[cannot-write]: standard output is closed\n  = help: send it to a file, or to /dev/null\n"
        )
        return 2
    if not words:
        sys.stderr.write(overview())
        return 2
    if words[0] in ("-h", "--help"):
        sys.stdout.write(overview())
        return 0
    if words[0] == "--version":
        sys.stdout.write(_version())
        return 0
    return _run(words, own=own)


def _run(words: Sequence[str], *, own: bool) -> int:
    """A command, with signals handled; `own` says that the process is ours, and nobody's who called us from Python."""
    from onnxproof.cli import _signals

    try:
        with _signals.handled(lambda: _signals.leave_at_once(STOPPED, 2)):
            from onnxproof.cli import _dispatch
            from onnxproof.system import guard, temporary

            code = _dispatch.dispatch(words[0], words[1:])
            if own:
                temporary.clear()
                guard.leave(code)
    except KeyboardInterrupt:  # while a command was being imported
        sys.stderr.write(STOPPED + "\n")
        code = 2
    if own:
        _signals.end_with(code)
    return code


def _open_streams() -> bool:
    """Whether standard output is open; a stream that was closed is opened on nothing, since the next file would get its number."""
    closed = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 it stays open
    return not closed


def commands() -> dict[str, str]:
    """Each command with its one-line help, the most used first."""
    files = [file for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_")]
    first_lines = {file.stem: _first_line(file) for file in sorted(files)}
    most_used = {name: first_lines.pop(name) for name in _FIRST}
    return most_used | first_lines


def overview() -> str:
    """What `onnxproof --help` prints."""
    known = commands()
    width = max(map(len, known)) + 2
    lines = [
        "usage: onnxproof COMMAND [OPTIONS] ...",
        "",
        "Proves that an ONNX model still matches its PyTorch model.",
        "",
        "commands:",
    ]
    lines += [f"  {name:<{width}}{about}" for name, about in known.items()]
    lines += [
        "",
        "options:",
        "  --help      this text; `onnxproof COMMAND --help` tells the options of one command",
        "  --version   the version",
    ]
    return "\n".join([*lines, "", EXIT_CODES, ""])


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8") as stream:
        return stream.readline().strip().strip('"').rstrip(".")


def _version() -> str:
    from importlib import metadata

    try:
        return f"onnxproof {metadata.version('onnxproof')}\n"
    except metadata.PackageNotFoundError:
        return "onnxproof (not installed: run from its source tree)\n"
