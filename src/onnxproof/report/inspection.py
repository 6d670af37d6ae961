"""What `onnxproof inspect` saw, for people and as JSON."""

import json
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.inspection import Inspection, Rating
from onnxproof.inspection.view import format_bytes
from onnxproof.report.plain import safe, short, visible

_COLOURS = {Rating.GOOD: "green", Rating.ODD: "bold yellow", Rating.BAD: "bold red"}
_OPERATORS = 12


def dumps(seen: Inspection) -> str:
    """JSON, with the worst rating in front."""
    return json.dumps({"schema": "1", "rating": seen.rating.value, **asdict(seen)}, indent=2) + "\n"


def show(seen: Inspection, out: Console, *, quiet: bool = False) -> None:
    """One row a check, then operators and weights."""
    facts = f"{seen.path}: opset {seen.opset}, {seen.nodes} nodes, {seen.parameters:,} parameters, {format_bytes(seen.file_bytes)}"
    out.print(
        Text.assemble(
            (seen.rating.value.upper(), _COLOURS[seen.rating]),
            f"  {visible(facts)}{f', made by {short(seen.producer, 80)}' if seen.producer else ''}",
        ),
        soft_wrap=True,
    )
    if quiet:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("check", "verdict", "what"):
        table.add_column(name, overflow="fold")
    for check in sorted(seen.checks, key=lambda check: -list(Rating).index(check.rating)):
        table.add_row(
            safe(check.name),
            Text(check.rating.value, style=_COLOURS[check.rating]),
            safe(check.what),
        )
        if check.help and check.rating is not Rating.GOOD:
            table.add_row("", "", Text(visible(f"= help: {check.help}"), style="dim"))
    out.print()
    out.print(table)
    out.print()
    common = ", ".join(
        f"{name} {count}" for name, count in list(seen.operators.items())[:_OPERATORS]
    )
    more = (
        f" and {len(seen.operators) - _OPERATORS} more kinds"
        if len(seen.operators) > _OPERATORS
        else ""
    )
    out.print(safe(f"operators: {common}{more}"), soft_wrap=True)
    for weight in seen.heaviest[:5]:
        out.print(
            safe(
                f"  {format_bytes(weight.bytes):>10}  {weight.name} {weight.dtype}{list(weight.shape)}"
            ),
            soft_wrap=True,
        )
