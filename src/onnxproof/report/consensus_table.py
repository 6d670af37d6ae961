"""Several backends beside each other: backends by outputs, each against the truth, and who is right. Every writer shows this table."""

import math
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.report.plain import ratio, safe, short
from onnxproof.results import CrossCheck, Standing, Verdict

_WIDE = 80
"""From this width on the distances are shown."""
_CELL = 16
"""The least columns of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One backend: a cell for each output, how far it is from the truth and from the arbiter, and its verdict."""

    backend: str
    cells: tuple[str, ...]
    far: tuple[str, str]
    verdict: Verdict


def outputs(cross: CrossCheck) -> list[str]:
    """The outputs, in their order."""
    return list(dict.fromkeys(standing.output for standing in cross.standings))


def lines(cross: CrossCheck) -> list[Line]:
    """One line a backend."""
    made = []
    for backend in dict.fromkeys(standing.backend for standing in cross.standings):
        mine = {
            standing.output: standing for standing in cross.standings if standing.backend == backend
        }
        made.append(
            Line(
                backend=backend,
                cells=tuple(_cell(mine[output]) for output in outputs(cross)),
                far=(
                    _far([standing.from_truth for standing in mine.values()]),
                    _far([standing.from_arbiter for standing in mine.values()]),
                ),
                verdict=max(
                    (standing.verdict for standing in mine.values()), key=list(Verdict).index
                ),
            )
        )
    return made


def words(cross: CrossCheck) -> list[str]:
    """Who is right, and who disagrees with whom."""
    said = [f"on case `{cross.case}`: {cross.words}"]
    for one, other, apart in cross.disagree:
        how = (
            "only one of them answers"
            if math.isinf(apart)
            else f"their answers are {apart:.2g} apart, relative to their size"
        )
        said.append(f"{one} and {other} disagree: {how}")
    return said


def show(cross: CrossCheck, out: Console, colours: dict[Verdict, str]) -> None:
    """Print the table, and who disagrees with whom."""
    names, made = outputs(cross), lines(cross)
    distances = ("from truth", "from arbiter") if out.width >= _WIDE else ()
    beside = [max(len(line.backend) for line in made), *map(len, distances), len("diverged")]
    room = max(_CELL, (out.width - sum(beside) - 2 * len(beside)) // max(len(names), 1) - 2)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in (
        "backend",
        *(
            short(name if len(names) > 1 else f"{name}: x noise, worst case", room)
            for name in names
        ),
    ):
        table.add_column(safe(name), overflow="fold")
    for name in distances:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for line in made:
        table.add_row(
            safe(line.backend),
            *(safe(short(cell, room)) for cell in line.cells),
            *line.far[: len(distances)],
            Text(line.verdict.value, style=colours[line.verdict]),
        )
    out.print(table)
    for place, said in enumerate(words(cross)):
        out.print(safe(f"  {said}"), style="dim" if place else "", soft_wrap=True)


def _cell(standing: Standing) -> str:
    return f"{ratio(standing.noise_ratio)} ({standing.case})" if standing.cases else "not compared"


def _far(distances: list[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    return f"{max(known):.1e}" if known else "no answer"
