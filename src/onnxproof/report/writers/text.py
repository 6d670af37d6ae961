"""A proof as the text that the command line prints: without colours, for a log or a notebook."""

import io
from pathlib import Path

from onnxproof.report import terminal
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

_WIDTH = 120
"""Columns: as many as the command line has where its output is no terminal."""


def write(proof: Proof, path: str | Path) -> None:
    """Write the text; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def dumps(proof: Proof) -> str:
    """The verdict, the table, where and why, and the line that replays the worst case."""
    stream = io.StringIO()
    terminal.show(proof, terminal.plain_console(stream, _WIDTH))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
