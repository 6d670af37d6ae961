"""Make one report from stored proofs: HTML to look at, or a file for CI; several proofs get an index."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from onnxproof.cli import _options as option
from onnxproof.cli._deliver import exit_code
from onnxproof.errors import UsageError
from onnxproof.system.text import visible

_KINDS = {".html": "html", ".htm": "html", ".xml": "junit", ".md": "markdown", ".sarif": "sarif"}


def command(
    proofs: Annotated[
        list[str],
        typer.Argument(
            metavar="PROOF.json...", help="What `--json` wrote; a folder means every .json in it."
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="Where it goes: .html, .md, .xml (JUnit) or .sarif; the ending decides.",
        ),
    ],
    title: Annotated[str, typer.Option("--title", help="The title of the page.")] = "",
    quiet: option.Quiet = False,
    debug: option.Debug = False,
) -> int:
    """Write the report; the exit code is that of the worst proof."""
    kind = _KINDS.get(Path(output).suffix.lower())
    if kind is None:
        raise UsageError(
            "unknown-kind",
            f"what `{output}` should be can't be told from its ending",
            notes=[f"endings are {', '.join(_KINDS)}"],
            help="onnxproof report proof.json -o report.html",
        )
    from onnxproof.cli._deliver import load
    from onnxproof.report.terminal import console, headline
    from onnxproof.report.writers.json import read
    from onnxproof.system.writing import check, write_text

    check(output, what="the report")
    stored = [read(path) for path in _files(proofs)]
    writer = load(kind)
    text = writer.page(stored, title=title) if kind == "html" else writer.dumps_all(stored)
    write_text(text, output, what="the report")
    out = console()
    for proof in stored:
        out.print(headline(proof), soft_wrap=True)
    if not quiet:
        sys.stdout.write(visible(f"report: {output}") + "\n")
    return max(map(exit_code, stored), key=(0, 3, 1, 2).index)


def _files(words: list[str]) -> list[Path]:
    """The files, folders opened; a folder without a proof is an error and not an empty report."""
    files: list[Path] = []
    for word in words:
        path = Path(word)
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise UsageError(
                "nothing-there",
                f"there is no .json in the folder `{path}`",
                help="give what `--json` wrote",
            )
        files += inside
    return files
