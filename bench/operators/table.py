"""The rows in words: counts, and a page for the docs."""

from collections import Counter
from collections.abc import Sequence

from bench.operators.trial import Row

_RANK = ("crash", "hang", "failed", "error", "diverged", "drift", "vacuous", "faithful", "skipped")
"""An operator is told by the worst of its samples, in this order; skipped only where all are."""


def worst_by_operator(rows: Sequence[Row]) -> dict[str, Row]:
    """The worst row of each operator."""
    worst: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: (_RANK.index(row.verdict), -row.ratio)):
        worst.setdefault(row.operator, row)
    return dict(sorted(worst.items()))


def summary(rows: Sequence[Row]) -> str:
    """How many operators are usable, and what was said of them."""
    worst = worst_by_operator(rows).values()
    counts = Counter(row.verdict for row in worst)
    usable = len(worst) - counts["skipped"]
    words = [f"{counts[verdict]} {verdict}" for verdict in _RANK if verdict != "skipped"]
    proven = sum(row.causes[0][1] for row in rows if row.causes)
    return (
        f"{len(worst)} operators, {len(rows)} samples, {usable} operators usable: {', '.join(words)}; "
        f"{proven} samples with a first cause called proven; {sum(row.seconds for row in rows):.0f} s of processor time"
    )


def table(rows: Sequence[Row], seed: int, count: int) -> str:
    """The page: every operator that is not faithful, then why the others were left out."""
    worst = worst_by_operator(rows).values()
    lines = [
        "# torch's operators, exported and verified",
        "",
        f"Made by `python -m bench.operators --seed {seed} --samples {count}`: samples of torch's own tests (OpInfo), exported by",
        "`torch.onnx.export` with its default settings and verified with a budget of 10 s.",
        "",
        f"{summary(rows)}.",
        "",
        "## Not faithful",
        "",
        "| operator | arguments | verdict | noise ratio | case | node | causes (! proven) |",
        "| --- | --- | --- | ---: | --- | --- | --- |",
    ]
    lines += [_alarm(row) for row in worst if row.verdict not in ("faithful", "skipped")]
    lines += ["", "## Left out", "", "| operator | why |", "| --- | --- |"]
    lines += [
        f"| {row.operator} | {_plain(row.why)[:120]} |" for row in worst if row.verdict == "skipped"
    ]
    return "\n".join(lines) + "\n"


def _alarm(row: Row) -> str:
    causes = ", ".join(f"{code}{'!' * proven}" for code, proven in row.causes[:3])
    cells = (
        row.operator,
        _plain(row.about)[:80],
        row.verdict,
        f"{row.ratio:.3g}",
        row.case,
        row.node,
        causes,
    )
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that may stand in a cell of a table."""
    return " ".join(text.replace("|", "/").split())
