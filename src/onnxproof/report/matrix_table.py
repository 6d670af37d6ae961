"""The matrices of a file with weights in blocks, for people: how each is stored, what that costs, and what its next step would save."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from onnxproof.report.plain import safe
from onnxproof.results.blocks import MatrixCost

_FEW = 6
"""Matrices that are shown unless it is verbose."""


def show_matrices(matrices: Sequence[MatrixCost], out: Console, *, verbose: bool) -> None:
    """The costliest ones; nothing where there are none."""
    if matrices:
        out.print()
        out.print(_matrices(matrices, len(matrices) if verbose else _FEW))


def parts_in_words(matrix: MatrixCost) -> str:
    """The two parts of it that cost most, as shares of its cost."""
    shares = [f"{part.what} {part.cost / matrix.cost:.0%}" for part in matrix.parts[:2]]
    return ", ".join(shares)


def _matrices(matrices: Sequence[MatrixCost], most: int) -> Table:
    """The matrices that cost most; what in them costs it, where that was asked."""
    count = min(most, len(matrices))
    title = f"matrix ({count} of {len(matrices)}, the costliest first)"
    columns = ["stored as", "bits", "bytes", matrices[0].unit]
    with_parts = any(each.parts for each in matrices)
    if with_parts:
        columns.append("of which")
    table = plain_table(title, *columns, "the next step", "saves")
    for each in matrices[:most]:
        step = saves = ""
        if each.next_form:
            step = f"{each.next_form} (+{each.next_bytes:,} bytes)"
            saves = number(each.next_saves)
        cells = [safe(each.name), each.form, f"{each.bits:.2f}", f"{each.size:,}"]
        cells.append(number(each.cost) if each.measured else f"about {number(each.cost)}")
        if with_parts:
            cells.append(parts_in_words(each))
        table.add_row(*cells, step, saves)
    return table


def plain_table(first: str, *others: str) -> Table:
    """Without borders: names to the left, numbers to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right")
    return table


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}"
