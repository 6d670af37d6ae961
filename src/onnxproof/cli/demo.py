"""Train a small net, export it, verify it, then catch a fault in a copy that allclose lets through."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxproof.cli import _options as option

if TYPE_CHECKING:
    from rich.console import Console

    from onnxproof.cli._demo_model import Check, Story


def command(
    folder: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Where the models and proof.json go."
        ),
    ] = Path("demo"),
    debug: option.Debug = False,
) -> int:
    """The demo: exit code 0 when both models are judged rightly."""
    from onnxproof.cli import _demo_model
    from onnxproof.report.terminal import console
    from onnxproof.results import Verdict

    story = _demo_model.run(folder, _report_progress)
    _show(story, console(), folder)
    passes = story.healthy.proof.verdict is Verdict.FAITHFUL
    fails = story.broken.proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    return int(not (passes and fails))


def _report_progress(what: str) -> None:
    sys.stderr.write(f"onnxproof: {what}\n")


def _show(story: "Story", out: "Console", folder: Path) -> None:
    from rich.table import Table

    table = Table(
        title=f"a conv net that reads {story.accuracy:.1%} of {story.images} test digits right, and two ONNX files of it",
        title_justify="left",
    )
    table.add_column("")
    for check in (story.healthy, story.broken):
        table.add_column(check.path.name, justify="right")
    for name, cell in _ROWS:
        table.add_row(name, *(cell(check) for check in (story.healthy, story.broken)))
    out.print(table)
    out.print(
        f"{story.broken.path.name}: the epsilon of one BatchNorm is 1e-6 instead of 1e-5. The usual test lets it through;"
    )
    out.print("measured in the model's own rounding noise it stands out.")
    out.print(f"the proof: {folder / 'proof.json'}{_report(story, folder)}")


def _report(story: "Story", folder: Path) -> str:
    """Both proofs on one page, where the packages for it are there."""
    from onnxproof.errors import OnnxproofError
    from onnxproof.report.writers import html
    from onnxproof.system.writing import write_text

    try:
        html.check()
    except OnnxproofError:
        return ""
    page = html.page([story.broken.proof, story.healthy.proof], title="onnxproof: the demo")
    write_text(page, folder / "report.html")
    return f", to look at: {folder / 'report.html'}"


def _usual(check: "Check") -> str:
    word = "passes" if check.allclose else "fails"
    return f"{word} ({check.allowance:.0%} used)"


def _noise(check: "Check") -> str:
    worst = check.proof.worst
    if worst is None:
        return "nothing compared"
    return f"{worst.noise_ratio:,.1f} times"


def _verdict(check: "Check") -> str:
    from onnxproof.report.terminal import COLOURS

    colour = COLOURS[check.proof.verdict]
    return f"[{colour}]{check.proof.verdict.value.upper()}[/]"


def _node(check: "Check") -> str:
    location = check.proof.location
    if location is None or not location.nodes:
        return "-"
    return location.nodes[0]


_ROWS = (
    ("same digit chosen", lambda check: f"{check.same_answers:.1%}"),
    ("the usual test: allclose(atol=1e-4, rtol=1e-3)", _usual),
    ("onnxproof: cases tried", lambda check: str(len({gap.case for gap in check.proof.gaps}))),
    ("onnxproof: worst error, in rounding noise", _noise),
    ("onnxproof: verdict", _verdict),
    ("onnxproof: the guilty node", _node),
)
