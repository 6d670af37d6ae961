"""A proof as a short Markdown summary, for a pull request or a workflow's summary page."""

from collections.abc import Sequence
from pathlib import Path

from onnxproof.report import consensus_table
from onnxproof.report.plain import block, noise_change, relative, short, visible
from onnxproof.report.rows import facts, last_column, numbers, place, rows
from onnxproof.results import Verdict
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
    sign = _SIGNS[proof.verdict] if proof.passed or proof.verdict is not Verdict.FAITHFUL else "❌"
    parts = [
        f"### {sign} {proof.verdict.value.upper()}: {words(proof.candidate)}",
        words(proof.sentence().partition("\n")[0]),
        _table(proof),
        *_cross(proof),
        *_where(proof),
        *_causes(proof),
        *_lists(proof),
    ]
    if proof.replay:
        parts.append(
            "Replay the worst case:\n\n"
            + fenced(
                visible(proof.replay),
                "console" if proof.replay.startswith("onnxproof ") else "python",
            )
        )
    return (
        "\n\n".join(
            [*(part for part in parts if part), f"<sub>{words(' · '.join(facts(proof)))}</sub>"]
        )
        + "\n"
    )


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
    text, fence = block(text)[:_LONGEST], "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def _table(proof: Proof) -> str:
    if not proof.gaps:
        return ""
    made = rows(proof)
    lines = [
        "| group | backend | cases | worst case | × noise | × peak | max abs | "
        + last_column(proof)
        + " | verdict |",
        "|---|---|--:|---|--:|--:|--:|--:|---|",
    ]
    for row in made[:_ROWS]:
        cells = [
            row.group,
            row.backend,
            str(row.cases),
            short(row.worst.case, 60),
            *numbers(row.worst),
            row.verdict.value + (" (note)" if row.note else ""),
        ]
        lines.append("| " + " | ".join(map(words, cells)) + " |")
    more = f"\n\n... and {len(made) - _ROWS} more rows" if len(made) > _ROWS else ""
    return "\n".join(lines) + more


def _cross(proof: Proof) -> list[str]:
    """The backends beside each other."""
    if proof.cross is None:
        return []
    names = consensus_table.outputs(proof.cross)
    rows = [
        [
            "backend",
            *(f"{name}: × noise, worst case" for name in names),
            "from truth",
            "from arbiter",
            "verdict",
        ]
    ]
    rows += [
        [line.backend, *(short(cell, 60) for cell in line.cells), *line.far, line.verdict.value]
        for line in consensus_table.lines(proof.cross)
    ]
    table = ["| " + " | ".join(map(words, row)) + " |" for row in rows]
    rule = "|---" * (len(names) + 1) + "|--:|--:|---|"
    return [
        "\n".join([table[0], rule, *table[1:]]),
        "\n".join(f"- {words(said)}" for said in consensus_table.words(proof.cross)[:_FEW]),
    ]


def _where(proof: Proof) -> list[str]:
    if proof.location is None:
        return []
    source = proof.location.source
    line = (
        f"\n\n{words(f'{relative(source.file)}:{source.line}')}\n\n{fenced(visible(source.text), 'python')}"
        if source
        else ""
    )
    return [f"**Where:** {words(place(proof))}{line}"]


def _causes(proof: Proof) -> list[str]:
    made = []
    for cause in proof.causes[:_FEW]:
        fix = (
            f"\n  - Fix{f' (tried: {cause.fix.verdict.value})' if cause.fix.verdict else ''}: {words(cause.fix.what)}"
            if cause.fix
            else ""
        )
        made.append(
            f"- **{'Proven' if cause.proven else 'Possible'} cause** {words(cause.code)}: {words(cause.title)}\n  - {words(cause.evidence + noise_change(cause))}{fix}"
        )
    return ["\n".join(made)] if made else []


def _lists(proof: Proof) -> list[str]:
    findings = [
        f"- **{words(f.code)}**: {words(f.what)}{f' {words(f.help)}' if f.help else ''}"
        for f in proof.findings
    ]
    notes = [
        f"- note ({note.domain.value}): case {words(note.case)} on {words(note.backend)}, output {words(note.output)}: {words(note.what)}"
        for note in proof.notes
    ]
    return [
        "\n".join(
            lines[:_FEW] + ([f"- ... and {len(lines) - _FEW} more"] if len(lines) > _FEW else [])
        )
        for lines in (findings, notes)
        if lines
    ]
