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
        out.print(
            safe(
                f"assumed: {guard.text}{_at(guard.source)}{f'; {guard.tested}' if guard.tested else ''}"
            ),
            soft_wrap=True,
        )
    for attempt in record.attempts:
        word = "took" if attempt.worked else "tried"
        out.print(
            safe(f"{word}: {attempt.name}: {attempt.what}"),
            style="green" if attempt.worked else "dim",
            soft_wrap=True,
        )
    chosen = " · ".join(f"{name} {value}" for name, value in record.choices.items())
    out.print(
        safe(f"exported in {record.seconds:.1f} s{f' · {chosen}' if chosen else ''}"),
        style="dim",
        soft_wrap=True,
    )
    out.print()


def _dims(record: ExportRecord) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("input", "axis", "example", "dim", "why"):
        table.add_column(
            name, overflow="fold", justify="right" if name in ("axis", "example") else "left"
        )
    last = ""
    for dim in record.dims:
        shown = dim.input if dim.input != last else ""
        last = dim.input
        table.add_row(
            safe(shown),
            str(dim.axis),
            str(dim.size),
            safe(_name(dim)),
            safe(_why(dim)),
            style=None if dim.name else "yellow" if dim.baked else "dim",
        )
    return table


def _name(dim: ExportedDim) -> str:
    if not dim.name:
        return f"fixed at {dim.size}"
    if dim.maximum is None:
        return dim.name if dim.minimum < 2 else f"{dim.name} (from {dim.minimum})"
    return f"{dim.name} ({dim.minimum} to {dim.maximum})"


def _why(dim: ExportedDim) -> str:
    if dim.name:
        return "the range you gave" if dim.promised else ""
    baked = "; the module itself takes other sizes" if dim.baked else ""
    return f"{dim.reason}{_at(dim.source)}{baked}"


def _at(source: Source | None) -> str:
    return f" at {source.file.rpartition('/')[2]}:{source.line}: `{source.text}`" if source else ""
