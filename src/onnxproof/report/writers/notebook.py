"""A proof as a piece of HTML for a notebook's cell: the verdict, a chart of the case groups, where and why.

It runs no script and loads nothing, so it shows in a notebook that is not trusted, and on a page that was made of one.
"""

import math
from html import escape
from pathlib import Path

from onnxproof.options import Policy
from onnxproof.report.plain import relative, short
from onnxproof.report.rows import Row, facts, last_column, numbers, place, rows
from onnxproof.results import Cause, Gap, Status, Verdict
from onnxproof.results.proof import Proof
from onnxproof.system.writing import write_text

_COLOURS = {
    Verdict.FAITHFUL: "#2e7d32",
    Verdict.DRIFT: "#b26a00",
    Verdict.DIVERGED: "#c62828",
    Verdict.ERROR: "#c62828",
    Verdict.VACUOUS: "#6a1b9a",
}
"""Dark enough on white and light enough on black to be read: 4.5 to 1 on white."""
_ROWS = 12
_FEW = 3
"""Causes and findings that are shown."""
_BAR = 160
"""Pixels of the chart's widest bar."""
_LEAST, _MOST = 0.1, 1e6
"""Times the noise: where the bars begin and end, on a logarithmic scale."""


def write(proof: Proof, path: str | Path) -> None:
    """Write the piece of HTML; the file appears whole or not at all."""
    write_text(dumps(proof), path)


def dumps(proof: Proof) -> str:
    """The cell's HTML."""
    parts = [_headline(proof), _table(proof), *_explanation(proof), *_findings(proof)]
    if proof.replay:
        parts.append(f"<div>replay: <code>{_text(proof.replay)}</code></div>")
    return f'<div class="onnxproof" style="line-height:1.5">{"".join(parts)}</div>'


def _text(text: str) -> str:
    """Text that came from a model: one line, and no markup."""
    return escape(short(text))


def _headline(proof: Proof) -> str:
    word = f'<b style="color:{_COLOURS[proof.verdict]}">{proof.verdict.value.upper()}</b>'
    sentence = _text(proof.sentence().partition("\n")[0])
    return (
        f"<div>{word} {sentence}</div><div><small>{_text(' · '.join(facts(proof)))}</small></div>"
    )


def _table(proof: Proof) -> str:
    """One row a case group, with a bar that shows how far it is from the limit."""
    proof_rows = rows(proof)[:_ROWS]
    if not proof_rows:
        return ""
    limit = f"limit {proof.policy.noise_limit:g}"
    titles = ("group", "backend", "cases", "worst case", "× noise", limit, "max abs")
    head = "".join(f"<th>{title}</th>" for title in (*titles, last_column(proof), "verdict"))
    body = "".join(_row(row, proof.policy) for row in proof_rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(row: Row, policy: Policy) -> str:
    ratio, _, max_abs, last = numbers(row.worst)
    before = (row.group, row.backend, str(row.cases), row.worst.case, ratio)
    cells = [f"<td>{_text(cell)}</td>" for cell in before]
    cells.append(f"<td>{_bar(row.worst, row.verdict, policy)}</td>")
    cells += [f"<td>{_text(cell)}</td>" for cell in (max_abs, last)]
    word = f'<span style="color:{_COLOURS[row.verdict]}">{row.verdict.value}</span>'
    return f"<tr>{''.join(cells)}<td>{word}</td></tr>"


def _bar(gap: Gap, verdict: Verdict, policy: Policy) -> str:
    """The noise ratio as the length of a bar, and the limit as a line across it."""
    ratio = gap.noise_ratio if gap.status is Status.COMPARED else math.inf
    length, limit = _pixels(ratio), _pixels(policy.noise_limit)
    colour = _COLOURS[verdict]
    return (
        f'<svg width="{_BAR}" height="12" role="img" aria-label="{ratio:.3g} times the noise">'
        f'<rect x="0" y="2" width="{length}" height="8" fill="{colour}"/>'
        f'<line x1="{limit}" x2="{limit}" y1="0" y2="12" stroke="currentColor"/></svg>'
    )


def _pixels(ratio: float) -> int:
    if math.isnan(ratio):
        return _BAR
    bounded = min(max(ratio, _LEAST), _MOST)
    return round(_BAR * math.log(bounded / _LEAST) / math.log(_MOST / _LEAST))


def _explanation(proof: Proof) -> list[str]:
    """Where and why."""
    if proof.location is None:
        return []
    where = f"<div><b>where</b>: {_text(place(proof))}"
    source = proof.location.source
    if source is not None:
        line = _text(f"{relative(source.file)}:{source.line}")
        where += f", <code>{line}</code>: <code>{_text(source.text.strip())}</code>"
    return [f"{where}</div>", *map(_cause, proof.causes[:_FEW])]


def _cause(cause: Cause) -> str:
    word = "proven cause" if cause.proven else "possible cause"
    text = f"<div><b>{word} {_text(cause.code)}</b>: {_text(cause.title)}; {_text(cause.evidence)}"
    if cause.fix is not None:
        text += f"<br>fix: {_text(cause.fix.what)}"
    return f"{text}</div>"


def _findings(proof: Proof) -> list[str]:
    shown = [
        f"<div><b>{_text(finding.code)}</b>: {_text(finding.what)}</div>"
        for finding in proof.findings[:_FEW]
    ]
    if len(proof.findings) > _FEW:
        shown.append(f"<div>... and {len(proof.findings) - _FEW} more findings</div>")
    return shown
