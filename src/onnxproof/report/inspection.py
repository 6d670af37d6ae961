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
"""Kinds of operators that are shown."""


def dumps(seen: Inspection) -> str:
    """JSON, with the worst rating in front."""
    return json.dumps({"schema": "1", "rating": seen.rating.value, **asdict(seen)}, indent=2) + "\n"


def show(seen: Inspection, out: Console, *, quiet: bool = False) -> None:
    """One row a check, then operators and weights."""
    out.print(_headline(seen), soft_wrap=True)
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
    counts = [f"{name} {count}" for name, count in seen.operators.items()]
    operators = ", ".join(counts[:_OPERATORS])
    if len(counts) > _OPERATORS:
        operators += f" and {len(counts) - _OPERATORS} more kinds"
    out.print(safe(f"operators: {operators}"), soft_wrap=True)
    for weight in seen.heaviest[:5]:
        size = format_bytes(weight.bytes)
        line = f"  {size:>10}  {weight.name} {weight.dtype}{list(weight.shape)}"
        out.print(safe(line), soft_wrap=True)


def _headline(seen: Inspection) -> Text:
    facts = f"{seen.path}: opset {seen.opset}, {seen.nodes} nodes, {seen.parameters:,} parameters, {format_bytes(seen.file_bytes)}"
    facts = visible(facts)
    if seen.producer:
        facts += f", made by {short(seen.producer, 80)}"
    return Text.assemble((seen.rating.value.upper(), _COLOURS[seen.rating]), f"  {facts}")
