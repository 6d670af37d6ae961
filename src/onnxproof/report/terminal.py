"""A proof for people: the verdict in one sentence, one row a case group with the worst first, and the line that replays it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from onnxproof.judge import judge_gap, severity
from onnxproof.proof import Proof
from onnxproof.report import quality
from onnxproof.types import Gap, Location, Policy, Status, Verdict

COLOURS = {Verdict.FAITHFUL: "bold green", Verdict.DRIFT: "bold yellow", Verdict.DIVERGED: "bold red",
           Verdict.ERROR: "bold red", Verdict.VACUOUS: "bold magenta"}
_FEW = 4
"""Notes, findings and suspects that are shown before `... and n more`: the report keeps to one screen."""
_OTHERS = 62
"""Columns that the table needs besides the worst case's name, which gives way on a narrow screen."""
_LEGEND = ("x noise: rms error in units of the reference's own rounding noise; x peak: the same for the worst element;\n"
           "allclose: share of the classical tolerance that the worst element used, 100% and more fails")


def console(*, stderr: bool = False) -> Console:
    """Colours on a terminal only (and none under NO_COLOR); elsewhere plain lines that are not cut at 80 columns."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=max(made.width, 120))


def show(proof: Proof, out: Console, *, verbose: bool = False) -> None:
    """Print the whole report."""
    _headline(proof, out)
    if proof.gaps:
        out.print(_facts(proof), style="dim")
        out.print()
        out.print(_table(proof, out.width))
        if verbose:
            out.print(_LEGEND, style="dim")
        quality.show(proof, out)
    if verbose:
        _signature(proof, out)
    _notes(proof, out)
    _findings(proof, out)
    if proof.location is not None:
        _location(proof.location, out)
    _causes(proof, out)
    quality.waterfall(proof, out)
    if proof.replay:
        out.print()
        out.print(f"replay the worst case:\n  {escape(proof.replay)}", soft_wrap=True)


def explain(proof: Proof, out: Console) -> None:
    """Print only where and why, and the line that replays it."""
    _headline(proof, out)
    if proof.location is not None:
        _location(proof.location, out)
    elif proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED):
        out.print("  this proof does not say where: it was made with --no-explain, or nothing could be located", style="dim")
    _causes(proof, out)
    quality.waterfall(proof, out)
    if proof.replay:
        out.print(f"\nreplay the worst case:\n  {escape(proof.replay)}", soft_wrap=True)


def headline(proof: Proof) -> Text:
    """The verdict as a word, then the sentence."""
    sentence = proof.sentence().partition("\n")[0]
    return Text.assemble((proof.verdict.value.upper(), COLOURS[proof.verdict]), f"  {sentence}")


def _headline(proof: Proof, out: Console) -> None:
    out.print(headline(proof), soft_wrap=True)
    if proof.verdict is Verdict.DRIFT and proof.quality() is None:
        word = "fails, since the policy is strict" if proof.policy.strict else "passes, but it is a real defect: `--strict` makes it fail"
        tolerance = f"atol {proof.policy.atol:g}, rtol {proof.policy.rtol:g}"
        out.print(f"  a difference that rounding does not explain, too small for {tolerance}: it {word}", style="yellow", soft_wrap=True)
    if not proof.complete:
        clear = proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
        out.print(f"  not all cases were run: {'the verdict was clear' if clear else f'the budget of {proof.budget_s:g} s ended first'}", style="dim")


def _facts(proof: Proof) -> str:
    kinds = sorted({gap.noise_kind.value for gap in proof.gaps if gap.status is Status.COMPARED})
    total = proof.seconds.get("total", 0.0)
    forward = sum(seconds for name, seconds in proof.seconds.items() if name != "total")
    parts = [f"{len({gap.case for gap in proof.gaps})} cases on {', '.join(proof.backends)}", f"noise from {', '.join(kinds) or 'nothing'}"]
    parts += [f"{len(proof.dropped)} cases dropped, since the reference refuses them"] if proof.dropped else []
    parts += [f"{total:.1f} s ({forward / total:.0%} in forward passes)"] if total else []
    parts += [f"{proof.coverage.exercised} of {proof.coverage.points} decision points reached"] if proof.coverage.points else []
    return "  " + " · ".join([*parts, f"seed {proof.seed}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case group on one backend."""

    group: str
    backend: str
    cases: int
    worst: Gap
    verdict: Verdict
    note: bool
    """True when everything that differs there is a note."""


def rows(proof: Proof) -> list[Row]:
    """One row a case group (and backend), the worst first."""
    groups: dict[tuple[str, str], list[Gap]] = {}
    for gap in proof.gaps:
        groups.setdefault((gap.group, gap.backend), []).append(gap)
    made = [_row(group, backend, gaps, proof.policy) for (group, backend), gaps in groups.items()]
    return sorted(made, key=lambda row: severity(row.worst, proof.policy), reverse=True)


def _row(group: str, backend: str, gaps: Sequence[Gap], policy: Policy) -> Row:
    counted = [gap for gap in gaps if gap.domain is None] or gaps
    worst = max(counted, key=lambda gap: severity(gap, policy))
    return Row(group=group, backend=backend, cases=len({gap.case for gap in gaps}), worst=worst, verdict=judge_gap(worst, policy),
               note=any(gap.domain is not None or gap.odd for gap in gaps))


def _table(proof: Proof, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    several = len(proof.backends) > 1
    table.add_column("group", no_wrap=True)
    if several:
        table.add_column("backend", no_wrap=True)
    table.add_column("cases", justify="right", no_wrap=True)
    table.add_column("worst case", no_wrap=True)
    for name in ("x noise", "x peak", "max abs", "allclose"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    outputs = len(proof.signature.outputs) > 1
    room = max(width - (_OTHERS + 10 if several else _OTHERS), 12)
    for row in rows(proof):
        where = f"{row.worst.case} ({row.worst.output})" if outputs else row.worst.case
        cells = [row.group, *([row.backend] if several else []), str(row.cases), _cut(where, room), *_numbers(row.worst)]
        table.add_row(*map(escape, cells), Text(row.verdict.value + (" *" if row.note else ""), style=COLOURS[row.verdict]))
    return table


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[:room - 3] + "..."


def _numbers(gap: Gap) -> list[str]:
    """Noise ratio, the same for the worst element, max abs, share of the classical tolerance; words where there is no number."""
    if gap.status not in (Status.COMPARED, Status.DTYPE):
        return [gap.status.value, "", "", ""]
    if gap.lost:
        return [f"{gap.lost} not finite", "", "", "fails"]
    if gap.mismatches:
        return [f"{gap.mismatches} differ", "", f"{gap.max_abs:.3g}", _share(gap.allowance)]
    return [_ratio(gap.noise_ratio), _ratio(gap.worst_ratio), f"{gap.max_abs:.2g}", _share(gap.allowance)]


def _ratio(value: float) -> str:
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}" if math.isfinite(value) else str(value)


def _share(allowance: float) -> str:
    """How much of the classical tolerance the worst element used: below 100 % `allclose` passes."""
    return f"{allowance:.2%}" if allowance < 0.1 else f"{allowance:.0%}" if allowance < 10 else "fails"


def _signature(proof: Proof, out: Console) -> None:
    out.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("  tensor", "reference", "in the file", "paired by"):
        table.add_column(name, overflow="fold")
    for info in proof.signature.inputs:
        filed = f"{info.onnx_name} {info.onnx_dtype}" if info.onnx_name else "absent"
        table.add_row(*map(escape, (f"  input {info.name}", f"{info.dtype}[{', '.join(map(str, info.dims))}]", filed, info.paired_by)))
    for output in proof.signature.outputs:
        shape = f"{output.dtype}[{', '.join(map(str, output.shape))}]"
        table.add_row(*map(escape, (f"  output {output.name}", shape, output.onnx_name or "absent", output.paired_by)))
    out.print(table)
    for dim in proof.signature.dims:
        limit = f"{dim.minimum} to {dim.maximum if dim.maximum is not None else 'any size'}"
        out.print(escape(f"  dim {dim.name}: {dim.example} in the example, {f'follows {dim.derived}' if dim.derived else limit}"
                         f"{'' if dim.declared else ' (left open by the file)'}"), soft_wrap=True)
    for name, version in proof.environment.items():
        out.print(escape(f"  {name} {version}"), style="dim", soft_wrap=True)
    for dropped in proof.dropped:
        out.print(escape(f"  dropped {dropped.case}: {dropped.reason}"), style="dim", soft_wrap=True)


def _notes(proof: Proof, out: Console) -> None:
    if not proof.notes:
        return
    out.print()
    counts = "they count, since the policy is strict about domains" if proof.policy.strict_domains else "they do not change the verdict"
    out.print(Text.assemble(("notes (*)", "bold"), f": {len(proof.notes)} differences where runtimes differ by nature; {counts}"))
    for note in proof.notes[:_FEW]:
        out.print(escape(f"  {note.domain.value}: case `{note.case}` on {note.backend}, output `{note.output}`: {note.what}"), soft_wrap=True)
        out.print(escape(f"    reference {note.reference}\n    candidate {note.candidate}"), style="dim", soft_wrap=True)
    _more(len(proof.notes), out)


def _findings(proof: Proof, out: Console) -> None:
    if not proof.findings:
        return
    out.print()
    out.print("findings", style="bold")
    for finding in proof.findings[:_FEW]:
        out.print(escape(f"  {finding.code}: {finding.what}"), soft_wrap=True)
        if finding.help:
            out.print(escape(f"    = help: {finding.help}"), style="dim", soft_wrap=True)
    _more(len(proof.findings), out)


def _location(location: Location, out: Console) -> None:
    out.print()
    nodes = ", ".join(location.nodes[:3]) or "no single node"
    optimizer = f" ({location.optimizer})" if location.optimizer else ""
    out.print(Text.assemble(("where", "bold"), f": stage {location.stage.value}{optimizer}, {nodes}"), soft_wrap=True)
    if location.source is not None:
        out.print(escape(f"  --> {location.source.file}:{location.source.line}\n      {location.source.text}"), soft_wrap=True)
    if location.module:
        out.print(escape(f"  = note: in module {location.module}"), soft_wrap=True)
    if location.evidence:
        out.print(escape(f"  = note: {location.evidence}"), soft_wrap=True)


def _causes(proof: Proof, out: Console) -> None:
    if not proof.causes:
        return
    out.print()
    for cause in proof.causes[:_FEW]:
        word = ("proven cause", "bold red") if cause.proven else ("possible cause", "bold yellow")
        out.print(Text.assemble(word, f" {cause.code}: {cause.title}"), soft_wrap=True)
        moved = f" ({_ratio(cause.before)} times the noise before, {_ratio(cause.after)} after)" if cause.before else ""
        out.print(escape(f"  = note: {cause.evidence}{moved}"), soft_wrap=True)
        if cause.fix is not None:
            tried = f" (tried: {cause.fix.verdict.value})" if cause.fix.verdict else ""
            out.print(escape(f"  = help: {cause.fix.what}{tried}"), soft_wrap=True)


def _more(count: int, out: Console) -> None:
    if count > _FEW:
        out.print(f"  ... and {count - _FEW} more", style="dim")
