"""One file a command: the file's name is the command, the first line of its docstring is its help, and `command` does it.

`onnxproof --help` must be quick, so it imports nothing: it reads those first lines. A command's file is imported when it
is asked for, and only then is typer.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_CODES = "exit codes: 0 faithful (or drift without --strict), 1 diverged (or drift with --strict), 2 error or bad usage, 3 nothing is proven"
_FIRST = ("verify", "export", "diff")


def main(words: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code."""
    words = sys.argv[1:] if words is None else list(words)
    if not words:
        sys.stderr.write(overview())
        return 2
    if words[0] in ("-h", "--help"):
        sys.stdout.write(overview())
        return 0
    if words[0] == "--version":
        sys.stdout.write(_version())
        return 0
    from onnxproof.cli import _dispatch

    return _dispatch.dispatch(words[0], words[1:])


def commands() -> dict[str, str]:
    """Each command with its one-line help, the most used first."""
    files = [file for file in Path(__file__).parent.glob("*.py") if not file.stem.startswith("_")]
    files.sort(key=lambda file: (_FIRST.index(file.stem) if file.stem in _FIRST else len(_FIRST), file.stem))
    return {file.stem: _first_line(file) for file in files}


def overview() -> str:
    """What `onnxproof --help` prints."""
    known = commands()
    width = max(map(len, known)) + 2
    lines = ["usage: onnxproof COMMAND [OPTIONS] ...", "", "Proves that an ONNX model still says what its PyTorch model says.", "", "commands:"]
    lines += [f"  {name:<{width}}{about}" for name, about in known.items()]
    lines += ["", "options:", "  --help      this text; `onnxproof COMMAND --help` tells the options of one command", "  --version   the version"]
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
