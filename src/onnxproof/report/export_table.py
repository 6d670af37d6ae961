"""How a file was exported, for people: the dims, what was assumed, what was tried."""

from rich.console import Console
from rich.table import Table

from onnxproof.report.plain import safe
from onnxproof.results import ExportedDim, ExportRecord, Source


def show(record: ExportRecord, out: Console) -> None:
    """The table of dims first, then warnings, assumptions, attempts and choices."""
    if record.dims:
        out.print(_dims(record))
    for warning in record.warnings:
        out.print(safe(f"warning: {warning}"), style="yellow", soft_wrap=True)
    for guard in record.guards:
        assumption = f"assumed: {guard.text}{_at(guard.source)}"
        if guard.tested:
            assumption += f"; {guard.tested}"
        out.print(safe(assumption), soft_wrap=True)
    for attempt in record.attempts:
        word, style = "tried", "dim"
        if attempt.worked:
            word, style = "took", "green"
        out.print(safe(f"{word}: {attempt.name}: {attempt.what}"), style=style, soft_wrap=True)
    choices = [f"{name} {value}" for name, value in record.choices.items()]
    facts = " · ".join([f"exported in {record.seconds:.1f} s", *choices])
    out.print(safe(facts), style="dim", soft_wrap=True)
    out.print()


def _dims(record: ExportRecord) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("input", overflow="fold")
    table.add_column("axis", overflow="fold", justify="right")
    table.add_column("example", overflow="fold", justify="right")
    table.add_column("dim", overflow="fold")
    table.add_column("why", overflow="fold")
    last = ""
    for dim in record.dims:
        name = dim.input
        if name == last:  # an input's name stands at its first dim alone
            name = ""
        last = dim.input
        table.add_row(
            safe(name),
            str(dim.axis),
            str(dim.size),
            safe(_name(dim)),
            safe(_why(dim)),
            style=_style(dim),
        )
    return table


def _style(dim: ExportedDim) -> str | None:
    if dim.name:
        return None
    if dim.baked:
        return "yellow"
    return "dim"


def _name(dim: ExportedDim) -> str:
    if not dim.name:
        return f"fixed at {dim.size}"
    if dim.maximum is not None:
        return f"{dim.name} ({dim.minimum} to {dim.maximum})"
    if dim.minimum < 2:
        return dim.name
    return f"{dim.name} (from {dim.minimum})"


def _why(dim: ExportedDim) -> str:
    if dim.name:
        return "the range you gave" if dim.promised else ""
    reason = f"{dim.reason}{_at(dim.source)}"
    if dim.baked:
        reason += "; the module itself takes other sizes"
    return reason


def _at(source: Source | None) -> str:
    if not source:
        return ""
    file = source.file.rpartition("/")[2]
    return f" at {file}:{source.line}: `{source.text}`"
