"""A proof for people: the verdict in one sentence, one row a case group with the worst first, and the line that replays it."""

from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onnxproof.report import consensus_table, export_table, matrix_table, quality, rollout_table
from onnxproof.report.plain import brief, noise_change, relative, safe, short, visible
from onnxproof.report.rows import Row, column_names, facts, last_column, numbers, place, rows
from onnxproof.results import Cause, DimInfo, Finding, Location, Verdict
from onnxproof.results.gaps import CAUSE_FAILED
from onnxproof.results.proof import Proof

COLOURS = {
    Verdict.FAITHFUL: "bold green",
    Verdict.DRIFT: "bold yellow",
    Verdict.DIVERGED: "bold red",
    Verdict.ERROR: "bold red",
    Verdict.VACUOUS: "bold magenta",
}
_FEW = 4
"""Notes, findings and suspects that are shown before `... and n more`: the report keeps to one screen."""
_ALWAYS = ("data-",)
"""Findings below the verdict, under -q too: whoever gives data must know what of it was not compared as it is."""
_ROWS = 8
"""Rows of the table, unless it is verbose."""
_NEARLY = 0.95
"""Of the budget: what is left then is not enough for another case."""
_CASE = 10
"""The least columns of a case's name: it gives way first on a narrow terminal."""
_SPARE = (
    "max abs",
    "x peak",
    "at worst",
    "runtime adds",
    "allclose",
    "SQNR",
    "allclose or SQNR",
    "cases",
    "worst case",
    "backend",
)
"""Then these columns do, in this order."""
_RIGHT = frozenset(
    {
        "cases",
        "x noise",
        "x peak",
        "runtime adds",
        "at worst",
        "max abs",
        "allclose",
        "SQNR",
        "allclose or SQNR",
    }
)
_LEGEND = (
    "x noise: rms error in units of the reference's own rounding noise; x peak: the same for the worst element;\n"
    "allclose: share of the classical tolerance that the worst element used, 100% and more fails"
)
_QUANTIZED_LEGEND = (
    "runtime adds: its error beyond the graph's own quantization, as a share of what that costs; at worst: the same for the worst element;\n"
    "SQNR: what is left of the reference's answers, asked on your data, or else on the example inputs"
)


class _Console(Console):
    """A console whose reader may leave (`| head`): rich would end the program as a module does that calls sys.exit."""

    def on_broken_pipe(self) -> None:
        """Let the command line end quietly."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Colours on a terminal only (and none under NO_COLOR); elsewhere plain lines that are not cut at 80 columns."""
    plain = _Console(stderr=stderr, highlight=False)
    if plain.is_terminal:
        return plain
    return _Console(stderr=stderr, highlight=False, width=max(plain.width, 120))


def plain_console(stream: TextIO, width: int) -> Console:
    """A console that writes plain text into a stream, whatever the terminal is."""
    return _Console(
        file=stream, width=width, highlight=False, color_system=None, force_terminal=False
    )


def show(proof: Proof, out: Console, *, verbose: bool = False) -> None:
    """Print the whole report."""
    if proof.export is not None:
        export_table.show(proof.export, out)
    _headline(proof, out)
    _parts(proof, out)
    if proof.gaps:
        _measurements(proof, out, verbose=verbose)
    rollout_table.show(proof, out)
    if verbose:
        _signature(proof, out)
    if proof.location is not None:
        _location(proof.location, place(proof), out)
    _causes(proof, out)
    quality.waterfall(proof, out)
    matrix_table.show_matrices(proof.matrices, out, verbose=verbose)
    _notes(proof, out, _FEW if verbose or proof.location is None else 1)
    _findings(proof, out)
    _replay(proof, out)


def _measurements(proof: Proof, out: Console, *, verbose: bool) -> None:
    """What was done, and the tables of what came of it."""
    out.print(safe("  " + " · ".join(facts(proof))), style="dim", soft_wrap=True)
    out.print()
    if proof.cross is None or verbose:
        out.print(_table(proof, out.width, verbose=verbose))
        if not verbose:
            _more(len(rows(proof)), out, shown=_ROWS)
    if proof.cross is not None:
        consensus_table.show(proof.cross, out, COLOURS)
    if verbose:
        out.print(_QUANTIZED_LEGEND if last_column(proof) == "SQNR" else _LEGEND, style="dim")
    quality.show(proof, out)


def _parts(proof: Proof, out: Console) -> None:
    """The files of a folder, each with what was proven of it alone."""
    for part in proof.parts:
        verdict = part.verdict.value if part.judged else "by its loop"
        line = f"  {verdict:>11}  {part.file}, {part.role}, {part.cases} cases"
        out.print(safe(line), style=COLOURS[part.verdict] if part.judged else "dim")


def _replay(proof: Proof, out: Console) -> None:
    if proof.replay:
        out.print(f"\nreplay the worst case:\n  {safe(proof.replay)}", soft_wrap=True)


def explain(proof: Proof, out: Console) -> None:
    """Print only where and why, and the line that replays it."""
    _headline(proof, out)
    if proof.location is not None:
        _location(proof.location, place(proof), out)
    elif proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED):
        out.print(
            "  this proof does not say where: it was made with --no-explain, or nothing could be located",
            style="dim",
        )
    _causes(proof, out)
    quality.waterfall(proof, out)
    matrix_table.show_matrices(proof.matrices, out, verbose=False)
    _replay(proof, out)


def summary(proof: Proof, out: Console) -> None:
    """Only the verdict, what makes the run fail although the verdict stands, and what became of the user's data."""
    out.print(headline(proof), soft_wrap=True)
    for finding in proof.findings:
        if not _is_below_verdict(finding):
            continue
        word = ("  note", "bold yellow")
        if finding.fails:
            word = ("  fails", "bold red")
        line = Text.assemble(word, visible(f" {finding.code}: {finding.what}"))
        out.print(line, soft_wrap=True)
        _help(finding, out)


def _is_below_verdict(finding: Finding) -> bool:
    """Findings that are shown below the verdict instead of at the end."""
    return finding.fails or finding.code.startswith(_ALWAYS)


def _help(finding: Finding, out: Console) -> None:
    if finding.help:
        out.print(safe(f"    = help: {finding.help}"), style="dim", soft_wrap=True)


def headline(proof: Proof) -> Text:
    """The verdict as a word, then the sentence."""
    sentence = visible(proof.sentence().partition("\n")[0])
    return Text.assemble((proof.verdict.value.upper(), COLOURS[proof.verdict]), f"  {sentence}")


def _headline(proof: Proof, out: Console) -> None:
    summary(proof, out)
    if proof.verdict is Verdict.DRIFT and proof.quality() is None:
        consequence = "passes, but it is a real defect: `--strict` makes it fail"
        if proof.policy.strict:
            consequence = "fails, since the policy is strict"
        tolerance = f"atol {proof.policy.atol:g}, rtol {proof.policy.rtol:g}"
        out.print(
            f"  a difference that rounding does not explain, too small for {tolerance}: it {consequence}",
            style="yellow",
            soft_wrap=True,
        )
    # other verdicts say it in their sentence
    says_it_here = proof.error or proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    if not proof.complete and says_it_here:
        out.print(f"  not all cases were run: {_reason_unfinished(proof)}", style="dim")


def _reason_unfinished(proof: Proof) -> str:
    """Why cases were left out: somebody stopped the run, something failed, the time was over, or nothing could change the verdict any more."""
    if proof.error.startswith("error[interrupted]"):
        return "the run was stopped"
    if proof.error:
        return "an error came first"
    late = proof.seconds.get("total", 0.0) >= _NEARLY * proof.budget_s
    if proof.verdict is Verdict.DIVERGED and not late:
        return "the verdict was clear"
    return f"the budget of {proof.budget_s:g} s ended first"


def _table(proof: Proof, width: int, *, verbose: bool) -> Table:
    """As many columns as the terminal has room for; as many rows as a screen has."""
    shown_rows = rows(proof)
    if not verbose:
        shown_rows = shown_rows[:_ROWS]
    columns = _columns(proof, shown_rows)
    for spare in _SPARE:
        if _width(columns) <= width:
            break
        columns.pop(spare, None)
    room = max(width - _width(columns) + _CASE, _CASE)
    if "worst case" in columns:
        columns["worst case"] = [short(cell, room) for cell in columns["worst case"]]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in (*columns, "verdict"):
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    for row, *cells in zip(shown_rows, *columns.values(), strict=True):
        word = row.verdict.value
        if row.note:
            word += " *"
        table.add_row(*map(safe, cells), Text(word, style=COLOURS[row.verdict]))
    return table


def _columns(proof: Proof, shown_rows: Sequence[Row]) -> dict[str, list[str]]:
    """Every column but the verdict, by its name."""
    columns = {"group": [row.group for row in shown_rows]}
    if len(proof.backends) > 1:
        columns["backend"] = [row.backend for row in shown_rows]
    columns["cases"] = [str(row.cases) for row in shown_rows]
    columns["worst case"] = [row.worst.case for row in shown_rows]
    if len(proof.signature.outputs) > 1:
        columns["worst case"] = [f"{row.worst.case} ({row.worst.output})" for row in shown_rows]
    cells = [numbers(row.worst) for row in shown_rows]
    for position, name in enumerate(column_names(proof)):
        columns[name] = [row_cells[position] for row_cells in cells]
    return columns


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """The columns that they take beside the verdict, with the least that a case's name needs."""
    widths = []
    for name, cells in columns.items():
        width = max(map(len, [name, *map(visible, cells)]))
        if name == "worst case":
            width = _CASE
        widths.append(width)
    return sum(widths) + len(widths) + len("faithful *")


def _signature(proof: Proof, out: Console) -> None:
    out.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("  tensor", "reference", "in the file", "paired by"):
        table.add_column(name, overflow="fold")
    for info in proof.signature.inputs:
        dims = ", ".join(map(str, info.dims))
        in_file = f"{info.onnx_name} {info.onnx_dtype}" if info.onnx_name else "absent"
        cells = (f"  input {info.name}", f"{info.dtype}[{dims}]", in_file, info.paired_by)
        table.add_row(*map(safe, cells))
    for output in proof.signature.outputs:
        shape = f"{output.dtype}[{', '.join(map(str, output.shape))}]"
        in_file = output.onnx_name or "absent"
        cells = (f"  output {output.name}", shape, in_file, output.paired_by)
        table.add_row(*map(safe, cells))
    out.print(table)
    for dim in proof.signature.dims:
        out.print(safe(_describe_dim(dim)), soft_wrap=True)
    for name, version in proof.environment.items():
        out.print(safe(f"  {name} {version}"), style="dim", soft_wrap=True)
    for dropped in proof.dropped:
        out.print(safe(f"  dropped {dropped.case}: {dropped.reason}"), style="dim", soft_wrap=True)


def _describe_dim(dim: DimInfo) -> str:
    maximum = "any size" if dim.maximum is None else dim.maximum
    limits = f"{dim.minimum} to {maximum}"
    if dim.derived:
        limits = f"follows {dim.derived}"
    line = f"  dim {dim.name}: {dim.example} in the example, {limits}"
    if not dim.declared:
        line += " (left open by the file)"
    return line


def _notes(proof: Proof, out: Console, few: int) -> None:
    if not proof.notes:
        return
    out.print()
    weight = "they do not change the verdict"
    if proof.policy.strict_domains:
        weight = "they count, since the policy is strict about domains"
    sentence = f": {len(proof.notes)} differences where runtimes differ by nature; {weight}"
    out.print(Text.assemble(("notes (*)", "bold"), sentence), soft_wrap=True)
    for note in proof.notes[:few]:
        where = f"case `{note.case}` on {note.backend}, output `{note.output}`"
        out.print(safe(f"  {note.domain.value}: {where}: {note.what}"), soft_wrap=True)
        reference = f"    reference {safe(brief(note.reference))}"
        candidate = f"    candidate {safe(brief(note.candidate))}"
        out.print(f"{reference}\n{candidate}", style="dim", soft_wrap=True)
    _more(len(proof.notes), out, shown=few)


def _findings(proof: Proof, out: Console) -> None:
    findings = [finding for finding in proof.findings if not _is_below_verdict(finding)]
    if not findings:
        return
    findings.sort(key=lambda finding: finding.code != CAUSE_FAILED)  # never among those left out
    out.print()
    out.print("findings", style="bold")
    for finding in findings[:_FEW]:
        out.print(safe(f"  {finding.code}: {finding.what}"), soft_wrap=True)
        _help(finding, out)
    _more(len(findings), out)


def _location(location: Location, where: str, out: Console) -> None:
    out.print()
    out.print(Text.assemble(("where", "bold"), f": {visible(where)}"), soft_wrap=True)
    if location.source is not None:
        source = location.source
        line = safe(f"{relative(source.file)}:{source.line}")
        out.print(f"  --> {line}\n      {safe(source.text.strip())}", soft_wrap=True)
    if location.module:
        out.print(safe(f"  = note: in module {location.module}"), soft_wrap=True)
    if location.evidence:
        out.print(safe(f"  = note: {location.evidence}"), soft_wrap=True)


def _causes(proof: Proof, out: Console) -> None:
    if not proof.causes and not proof.tried and not proof.untried:
        return
    out.print()
    if not any(cause.proven for cause in proof.causes) and (proof.tried or proof.untried):
        sentence = f": {_search(proof)}; `explain --repro DIR` makes a small case of it"
        out.print(Text.assemble(("cause unknown", "bold yellow"), sentence), soft_wrap=True)
    for cause in proof.causes[:_FEW]:
        _cause(cause, out)


def _cause(cause: Cause, out: Console) -> None:
    word = ("possible cause", "bold yellow")
    if cause.proven:
        word = ("proven cause", "bold red")
    out.print(Text.assemble(word, visible(f" {cause.code}: {cause.title}")), soft_wrap=True)
    note = f"  = note: {brief(cause.evidence)}{noise_change(cause)}"
    out.print(safe(note), soft_wrap=True)
    if cause.fix is not None:
        fix = f"  = help: {cause.fix.what}"
        if cause.fix.verdict:
            fix += f" (tried: {cause.fix.verdict.value})"
        out.print(safe(fix), soft_wrap=True)


def _search(proof: Proof) -> str:
    """How many causes were ruled out, and how many could not be tried."""
    parts = []
    if proof.tried:
        parts.append(f"{len(proof.tried)} were ruled out (`tried` in the JSON says how)")
    if proof.untried:
        parts.append(f"{len(proof.untried)} were not tried (`untried` says why)")
    return " and ".join(parts)


def _more(count: int, out: Console, *, shown: int = _FEW) -> None:
    if count > shown:
        out.print(f"  ... and {count - shown} more", style="dim")
