"""A proof as rows: one for each case group and backend, the worst first. Every writer shows these."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnxproof.options import Policy
from onnxproof.report.plain import percent, ratio, share
from onnxproof.results import Gap, Status, Verdict, judging
from onnxproof.results.judging import judge_gap, level_words, severity, worse
from onnxproof.results.proof import Proof

_RANK = (Verdict.VACUOUS, Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED, Verdict.ERROR)


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
    asked = {id(gap) for gap in judging.asked(proof.gaps)}
    unsorted = []
    for (group, backend), gaps in groups.items():
        judged = [gap for gap in gaps if id(gap) in asked]
        unsorted.append(_row(group, backend, gaps, proof.policy, judged))

    def badness(row: Row) -> tuple[int, Any]:
        return _RANK.index(row.verdict), severity(row.worst, proof.policy)

    return sorted(unsorted, key=badness, reverse=True)


def _row(
    group: str, backend: str, gaps: Sequence[Gap], policy: Policy, judged: Sequence[Gap]
) -> Row:
    """`judged` are those of the gaps by which the quality of a quantized candidate is judged: the row says what came of that, too."""
    counted = [gap for gap in gaps if gap.domain is None] or gaps
    worst = max(counted, key=lambda gap: severity(gap, policy))
    verdict = judge_gap(worst, policy)
    if judged:
        verdict = worse(verdict, judging.quality(judged, policy))
    return Row(
        group=group,
        backend=backend,
        cases=len({gap.case for gap in gaps}),
        worst=worst,
        verdict=verdict,
        note=any(gap.domain is not None or gap.odd for gap in gaps),
    )


def numbers(gap: Gap) -> list[str]:
    """Noise ratio, the same for the worst element, max abs, share of the classical tolerance (of a quantized candidate its decibels); words where there is no number."""
    if gap.status not in (Status.COMPARED, Status.DTYPE):
        return [gap.status.value, "", "", ""]
    if gap.lost:
        return [f"{gap.lost} not finite", "", "", "fails"]
    if gap.mismatches:
        return [f"{gap.mismatches} differ", "", f"{gap.max_abs:.3g}", share(gap.allowance)]
    if gap.noise_kind in judging.QUANTIZED:
        return [
            _added(gap.noise_ratio),
            _added(gap.worst_ratio),
            f"{gap.max_abs:.2g}",
            last_number(gap),
        ]
    return [ratio(gap.noise_ratio), ratio(gap.worst_ratio), f"{gap.max_abs:.2g}", last_number(gap)]


def _added(times: float) -> str:
    """What a runtime adds to a quantized graph's own error, as a share of it."""
    return percent(times, 1)


def last_number(gap: Gap) -> str:
    """The share of the classical tolerance; of a quantized candidate, which no such tolerance fits, the decibels that are left."""
    if gap.noise_kind not in judging.QUANTIZED:
        return share(gap.allowance)
    if gap.sqnr_db is None:
        return ""
    return level_words(gap.sqnr_db)


def last_column(proof: Proof) -> str:
    """What the last number of each row is."""
    kinds = {
        gap.noise_kind in judging.QUANTIZED
        for gap in proof.gaps
        if gap.status in (Status.COMPARED, Status.DTYPE)
    }
    if kinds == {True}:
        return "SQNR"
    if len(kinds) > 1:
        return "allclose or SQNR"
    return "allclose"


def column_names(proof: Proof) -> tuple[str, str, str, str]:
    """What the numbers of each row are."""
    last = last_column(proof)
    if last == "SQNR":
        return "runtime adds", "at worst", "max abs", last
    return "x noise", "x peak", "max abs", last


def column_titles(proof: Proof) -> list[str]:
    """The same where there is more than ASCII."""
    return [re.sub("^x ", "× ", name) for name in column_names(proof)]


def facts(proof: Proof) -> list[str]:
    """What was done, in a few words each: cases, noise, time, coverage, seed."""
    kinds = sorted({gap.noise_kind.value for gap in proof.gaps if gap.status is Status.COMPARED})
    cases = {gap.case for gap in proof.gaps}
    parts = [
        f"{len(cases)} cases on {', '.join(proof.backends)}",
        f"noise from {', '.join(kinds) or 'nothing'}",
    ]
    if proof.dropped:
        parts.append(f"{len(proof.dropped)} cases dropped, since the reference refuses them")
    total = proof.seconds.get("total", 0.0)
    if total:
        forward = sum(seconds for name, seconds in proof.seconds.items() if name != "total")
        parts.append(f"{total:.1f} s ({forward / total:.0%} in forward passes)")
    coverage = proof.coverage
    if coverage.points:
        parts.append(f"{coverage.exercised} of {coverage.points} decision points reached")
    return [*parts, f"seed {proof.seed}"]


def place(proof: Proof) -> str:
    """Where it went wrong, in one line; empty where that is not known."""
    location = proof.location
    if location is None:
        return ""
    stage = f"stage {location.stage.value}"
    if location.optimizer:
        stage += f" ({location.optimizer})"
    if location.file:
        stage += f", file {location.file}"
    return f"{stage}, {', '.join(location.nodes[:3]) or 'no single node'}"
