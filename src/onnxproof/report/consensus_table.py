"""Several backends beside each other: backends by outputs, each against the truth, and who is right. Every writer shows this table."""

import math
from collections.abc import Mapping, Sequence
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
    distances: tuple[str, str]
    verdict: Verdict


def outputs(cross: CrossCheck) -> list[str]:
    """The outputs, in their order."""
    return list(dict.fromkeys(standing.output for standing in cross.standings))


def lines(cross: CrossCheck) -> list[Line]:
    """One line a backend."""
    by_backend: dict[str, dict[str, Standing]] = {}
    for standing in cross.standings:
        by_backend.setdefault(standing.backend, {})[standing.output] = standing
    return [_line(backend, standings, outputs(cross)) for backend, standings in by_backend.items()]


def _line(backend: str, standings: Mapping[str, Standing], names: Sequence[str]) -> Line:
    from_truth = [standing.from_truth for standing in standings.values()]
    from_arbiter = [standing.from_arbiter for standing in standings.values()]
    verdicts = [standing.verdict for standing in standings.values()]
    return Line(
        backend=backend,
        cells=tuple(_cell(standings[output]) for output in names),
        distances=(_largest(from_truth), _largest(from_arbiter)),
        verdict=max(verdicts, key=list(Verdict).index),
    )


def words(cross: CrossCheck) -> list[str]:
    """Who is right, and who disagrees with whom."""
    sentences = [f"on case `{cross.case}`: {cross.words}"]
    for one, other, distance in cross.disagree:
        how = f"their answers are {distance:.2g} apart, relative to their size"
        if math.isinf(distance):
            how = "only one of them answers"
        sentences.append(f"{one} and {other} disagree: {how}")
    return sentences


def show(cross: CrossCheck, out: Console, colours: dict[Verdict, str]) -> None:
    """Print the table, and who disagrees with whom."""
    distances = ("from truth", "from arbiter") if out.width >= _WIDE else ()
    out.print(_table(cross, out.width, distances, colours))
    for place, sentence in enumerate(words(cross)):
        out.print(safe(f"  {sentence}"), style="dim" if place else "", soft_wrap=True)


def _table(
    cross: CrossCheck, width: int, distances: Sequence[str], colours: dict[Verdict, str]
) -> Table:
    names = outputs(cross)
    backends = lines(cross)
    longest = max((len(line.backend) for line in backends), default=0)
    others = [longest, *map(len, distances), len("diverged")]
    left = width - sum(others) - 2 * len(others)
    room = max(_CELL, left // max(len(names), 1) - 2)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    headers = names
    if len(names) == 1:
        headers = [f"{names[0]}: x noise, worst case"]
    table.add_column("backend", overflow="fold")
    for name in headers:
        table.add_column(safe(short(name, room)), overflow="fold")
    for name in distances:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for line in backends:
        table.add_row(
            safe(line.backend),
            *(safe(short(cell, room)) for cell in line.cells),
            *line.distances[: len(distances)],
            Text(line.verdict.value, style=colours[line.verdict]),
        )
    return table


def _cell(standing: Standing) -> str:
    if not standing.cases:
        return "not compared"
    return f"{ratio(standing.noise_ratio)} ({standing.case})"


def _largest(distances: list[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    if not known:
        return "no answer"
    return f"{max(known):.1e}"
