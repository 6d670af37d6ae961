"""A run of a suite on the terminal: what is not fine, the worst first, and one line for the whole."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from onnxproof.report.plain import safe, short
from onnxproof.suite import words
from onnxproof.suite.gate import Gate

if TYPE_CHECKING:
    from rich.console import Console

    from onnxproof.suite.records import Result
    from onnxproof.suite.run import SuiteResult

_ORDER = (Gate.FAULT, Gate.ERROR, Gate.VACUOUS, Gate.KNOWN, Gate.PASS)
_COLOURS = {
    Gate.PASS: "green",
    Gate.KNOWN: "yellow",
    Gate.FAULT: "red",
    Gate.ERROR: "magenta",
    Gate.VACUOUS: "yellow",
}
_ERROR_LINES = 16
"""Lines of an error that are shown; all of them are in the JSON."""


def show(suite: "SuiteResult", out: "Console", *, quiet: bool, verbose: bool) -> None:
    """The table, errors with their last words, and the headline last."""
    if not quiet:
        shown = [r for r in suite.results if verbose or _gate(suite, r) is not Gate.PASS]
        shown.sort(key=lambda result: _ORDER.index(_gate(suite, result)))
        if shown:
            out.print(_table(suite, shown))
        for result in shown:
            _show_error(result, out)
        _show_changes(suite, out, verbose=verbose)
    colour = "green" if not suite.exit_code else "red"
    out.print(Text(safe(words.headline(suite)), style=f"bold {colour}"), soft_wrap=True)


def _gate(suite: "SuiteResult", result: "Result") -> Gate:
    return suite.decisions[result.name].gate


def _table(suite: "SuiteResult", results: list["Result"]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("model", "verdict", "× noise", "s", "why"):
        table.add_column(column)
    for result in results:
        decision = suite.decisions[result.name]
        verdict = result.verdict
        if decision.gate is Gate.KNOWN:
            verdict += " (known)"
        why = decision.why or result.summary.partition("\n")[0]
        table.add_row(
            safe(result.name),
            Text(verdict, style=_COLOURS[decision.gate]),
            words.ratio(result),
            f"{result.duration_s:.1f}",
            short(why, 120),
        )
    return table


def _show_error(result: "Result", out: "Console") -> None:
    lines = result.error.splitlines()
    if not lines:
        return
    out.print(safe(f"{result.name}:"), soft_wrap=True)
    for line in lines[:_ERROR_LINES]:
        out.print(safe(f"  {line}"), style="dim", soft_wrap=True)


def _show_changes(suite: "SuiteResult", out: "Console", *, verbose: bool) -> None:
    """What was not run again, and why."""
    if suite.resumed:
        out.print(f"{suite.resumed} results were there from the start before", style="dim")
    if not suite.skipped:
        return
    out.print(f"skipped {len(suite.skipped)} models: their last results stand", style="dim")
    reasons = [*suite.reasons.items()]
    if verbose:
        reasons += suite.skipped.items()
    for name, why in reasons:
        out.print(safe(f"  {name}: {why}"), style="dim", soft_wrap=True)
