"""Several backends beside each other, for people: backends by outputs, each against the truth, and who is right."""

import math

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.report.plain import safe
from onnxproof.types import CrossCheck, Standing, Verdict


def show(cross: CrossCheck, out: Console, colours: dict[Verdict, str]) -> None:
    """Print the table, and who disagrees with whom."""
    outputs = list(dict.fromkeys(standing.output for standing in cross.standings))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("backend", no_wrap=True)
    for output in outputs:
        table.add_column(safe(output if len(outputs) > 1 else f"{output}: x noise, worst case"), no_wrap=True)
    table.add_column("from truth", justify="right", no_wrap=True)
    table.add_column("from arbiter", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for backend in dict.fromkeys(standing.backend for standing in cross.standings):
        mine = {standing.output: standing for standing in cross.standings if standing.backend == backend}
        verdict = max((standing.verdict for standing in mine.values()), key=list(Verdict).index)
        far = [_far([getattr(standing, field) for standing in mine.values()]) for field in ("from_truth", "from_arbiter")]
        table.add_row(safe(backend), *(safe(_cell(mine[output])) for output in outputs), *far, Text(verdict.value, style=colours[verdict]))
    out.print(table)
    out.print(safe(f"  on case `{cross.case}`: {cross.words}"), soft_wrap=True)
    for one, other, apart in cross.disagree:
        words = "only one of them answers" if math.isinf(apart) else f"their answers are {apart:.2g} apart, relative to their size"
        out.print(safe(f"  {one} and {other} disagree: {words}"), style="dim", soft_wrap=True)


def _cell(standing: Standing) -> str:
    if not standing.cases:
        return "not compared"
    ratio = f"{standing.noise_ratio:,.1f}" if standing.noise_ratio < 100 else f"{standing.noise_ratio:,.0f}"
    return f"{ratio} ({standing.case})"


def _far(distances: list[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    return f"{max(known):.1e}" if known else "no answer"
