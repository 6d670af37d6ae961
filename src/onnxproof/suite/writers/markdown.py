"""A run as a short Markdown summary, for a pull request or a workflow's summary page."""

from collections import Counter

from onnxproof.report.writers.markdown import failure as failure
from onnxproof.report.writers.markdown import fenced, table_row, words
from onnxproof.suite.gate import Gate
from onnxproof.suite.records import Result
from onnxproof.suite.run import SuiteResult
from onnxproof.suite.words import headline, ratio

_SIGNS = {
    Gate.PASS: "✅",
    Gate.KNOWN: "🟡",
    Gate.FAULT: "❌",
    Gate.ERROR: "💥",
    Gate.VACUOUS: "❔",
}
_ORDER = (Gate.FAULT, Gate.ERROR, Gate.VACUOUS, Gate.KNOWN)
_ROWS = 40
"""Models of a table: a summary page has a limit."""


def dumps(suite: SuiteResult) -> str:
    """The worst first; models that pass are only counted."""
    worst = sorted(
        (result for result in suite.results if suite.decisions[result.name].gate in _ORDER),
        key=lambda result: _ORDER.index(suite.decisions[result.name].gate),
    )
    sign = _SIGNS[Gate.PASS] if not suite.exit_code else _SIGNS[Gate.FAULT]
    parts = [f"### {sign} {words(headline(suite))}", _counts(suite)]
    if worst:
        parts.append(_table(suite, worst))
    errors = [result for result in worst if result.error][:3]
    parts += [f"{words(result.name)}:\n\n{fenced(result.error)}" for result in errors]
    if suite.missing:
        parts.append(f"Not run: {words(', '.join(suite.missing))}")
    commit = suite.run.commit_id or "no commit"
    parts.append(f"<sub>{words(f'run {suite.run.id}, {commit}, {suite.run.engine}')}</sub>")
    return "\n\n".join(parts) + "\n"


def _counts(suite: SuiteResult) -> str:
    counts = Counter(result.verdict for result in suite.results)
    return words(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))


def _table(suite: SuiteResult, results: list[Result]) -> str:
    lines = [table_row(["model", "verdict", "noise", "why"]), "|---|---|--:|---|"]
    for result in results[:_ROWS]:
        decision = suite.decisions[result.name]
        verdict = f"{_SIGNS[decision.gate]} {result.verdict}"
        why = decision.why or result.summary.partition("\n")[0]
        lines.append(table_row([result.name, verdict, ratio(result), why]))
    if len(results) > _ROWS:
        lines += ["", f"... and {len(results) - _ROWS} more"]
    return "\n".join(lines)
