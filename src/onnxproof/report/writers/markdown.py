"""A proof as a short Markdown summary, for a pull request or a workflow's summary page."""

from collections.abc import Sequence
from pathlib import Path

from onnxproof.report import consensus_table, rollout_table
from onnxproof.report.plain import block, noise_change, relative, short, visible
from onnxproof.report.rows import column_titles, facts, numbers, place, rows
from onnxproof.results import Cause, Finding, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.text import markdown
from onnxproof.system.writing import write_text

_SIGNS = {
    Verdict.FAITHFUL: "✅",
    Verdict.DRIFT: "⚠️",
    Verdict.DIVERGED: "❌",
    Verdict.ERROR: "💥",
    Verdict.VACUOUS: "❔",
}
_ROWS = 12
_FEW = 5
_LONGEST = 4000
"""Characters of a code block: a summary page has a limit."""


def write(proof: Proof, path: str | Path) -> None:
    """Write the summary; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def dumps(proof: Proof) -> str:
    """The summary's text."""
    sign = _SIGNS[proof.verdict]
    if proof.verdict is Verdict.FAITHFUL and not proof.passed:
        sign = "❌"
    parts = [
        f"### {sign} {proof.verdict.value.upper()}: {words(proof.candidate)}",
        words(proof.sentence().partition("\n")[0]),
        _table(proof),
        *_cross(proof),
        *_rollouts(proof),
        *_where(proof),
        *_causes(proof),
        *_lists(proof),
    ]
    if proof.replay:
        language = "console" if proof.replay.startswith("onnxproof ") else "python"
        parts.append(f"Replay the worst case:\n\n{fenced(visible(proof.replay), language)}")
    parts.append(f"<sub>{words(' · '.join(facts(proof)))}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def dumps_all(proofs: Sequence[Proof]) -> str:
    """The summaries of several proofs, one below the other."""
    return "\n---\n\n".join(map(dumps, proofs))


def failure(error: str) -> str:
    """The summary of a run that ended before anything was measured."""
    return f"### {_SIGNS[Verdict.ERROR]} ERROR: nothing was measured\n\n{fenced(error)}\n"


def words(text: str) -> str:
    r"""Text that stays text: no markup, no mention, no link, no line break.

    >>> print(words("a|b <script> *c*"))
    a\|b \<script\> \*c\*
    """
    return markdown(short(text))


def fenced(text: str, language: str = "text") -> str:
    """A code block that nothing inside can end."""
    text = block(text)[:_LONGEST]
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _table(proof: Proof) -> str:
    if not proof.gaps:
        return ""
    proof_rows = rows(proof)
    measured = " | ".join(column_titles(proof))
    lines = [
        f"| group | backend | cases | worst case | {measured} | verdict |",
        "|---|---|--:|---|--:|--:|--:|--:|---|",
    ]
    for row in proof_rows[:_ROWS]:
        verdict = row.verdict.value
        if row.note:
            verdict += " (note)"
        case = short(row.worst.case, 60)
        lines.append(
            table_row([row.group, row.backend, str(row.cases), case, *numbers(row.worst), verdict])
        )
    if len(proof_rows) > _ROWS:
        lines += ["", f"... and {len(proof_rows) - _ROWS} more rows"]
    return "\n".join(lines)


def table_row(cells: Sequence[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(map(words, cells)) + " |"


def _cross(proof: Proof) -> list[str]:
    """The backends beside each other."""
    if proof.cross is None:
        return []
    names = consensus_table.outputs(proof.cross)
    headers = [f"{name}: × noise, worst case" for name in names]
    table = [
        table_row(["backend", *headers, "from truth", "from arbiter", "verdict"]),
        "|---" * (len(names) + 1) + "|--:|--:|---|",
    ]
    for line in consensus_table.lines(proof.cross):
        cells = [short(cell, 60) for cell in line.cells]
        table.append(table_row([line.backend, *cells, *line.distances, line.verdict.value]))
    sentences = consensus_table.words(proof.cross)[:_FEW]
    return ["\n".join(table), "\n".join(f"- {words(sentence)}" for sentence in sentences)]


def _rollouts(proof: Proof) -> list[str]:
    """Loops: one line a schedule."""
    if not proof.rollouts:
        return []
    table = [table_row(rollout_table.COLUMNS), "|---" * len(rollout_table.COLUMNS) + "|"]
    table += [table_row(rollout_table.cells(rollout)) for rollout in proof.rollouts[:_ROWS]]
    said = [sentence for rollout in proof.rollouts for sentence in rollout_table.words(rollout)]
    return ["\n".join(table), "\n".join(f"- {words(sentence)}" for sentence in said[:_FEW])]


def _where(proof: Proof) -> list[str]:
    if proof.location is None:
        return []
    parts = [f"**Where:** {words(place(proof))}"]
    source = proof.location.source
    if source:
        parts.append(words(f"{relative(source.file)}:{source.line}"))
        parts.append(fenced(visible(source.text), "python"))
    return ["\n\n".join(parts)]


def _causes(proof: Proof) -> list[str]:
    return ["\n".join(map(_cause, proof.causes[:_FEW]))]


def _cause(cause: Cause) -> str:
    word = "Proven" if cause.proven else "Possible"
    evidence = cause.evidence
    evidence += noise_change(cause)
    lines = [
        f"- **{word} cause** {words(cause.code)}: {words(cause.title)}",
        f"  - {words(evidence)}",
    ]
    if cause.fix:
        tried = f" (tried: {cause.fix.verdict.value})" if cause.fix.verdict else ""
        lines.append(f"  - Fix{tried}: {words(cause.fix.what)}")
    return "\n".join(lines)


def _lists(proof: Proof) -> list[str]:
    findings = [_finding(finding) for finding in proof.findings]
    notes = []
    for note in proof.notes:
        where = f"case {words(note.case)} on {words(note.backend)}, output {words(note.output)}"
        notes.append(f"- note ({note.domain.value}): {where}: {words(note.what)}")
    return [_shorten(findings), _shorten(notes)]


def _finding(finding: Finding) -> str:
    line = f"- **{words(finding.code)}**: {words(finding.what)}"
    if finding.help:
        line += f" {words(finding.help)}"
    return line


def _shorten(lines: list[str]) -> str:
    """The first items of a list, and how many more there are."""
    shown = lines[:_FEW]
    if len(lines) > _FEW:
        shown.append(f"- ... and {len(lines) - _FEW} more")
    return "\n".join(shown)
