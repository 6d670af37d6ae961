"""Gaps to a verdict, by a policy that is data. Judging never measures, so a stored proof can be judged again."""

import math
from collections.abc import Iterable, Sequence

from onnxproof.compare import RTOL_GRID
from onnxproof.types import Finding, Gap, NoiseKind, Note, Policy, Status, Verdict

_ORDER = (Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED, Verdict.ERROR)


def beyond_noise(gap: Gap, policy: Policy) -> bool:
    """True when rounding does not explain the gap."""
    if gap.mismatches:
        return gap.mismatches > gap.unstable and gap.noise_ratio > policy.noise_limit / 4
    return not (gap.noise_ratio <= policy.noise_limit and gap.worst_ratio <= policy.worst_limit)  # an undefined ratio is beyond


def within_tolerance(gap: Gap, policy: Policy) -> bool:
    """What `allclose` would say, from the stored numbers; between two rtol of the grid the smaller one counts."""
    if not gap.atol_needed:
        return gap.allowance <= 1.0
    place = max(i for i, rtol in enumerate(RTOL_GRID) if rtol <= policy.rtol or i == 0)
    return gap.atol_needed[min(place, len(gap.atol_needed) - 1)] <= policy.atol


def judge_gap(gap: Gap, policy: Policy) -> Verdict:
    """One gap. A gap in an odd domain stays FAITHFUL here: it is a note, unless the policy makes notes count."""
    if gap.domain is not None and not policy.strict_domains:
        return Verdict.FAITHFUL if gap.compared else Verdict.VACUOUS
    if gap.status in (Status.SHAPE, Status.MISSING, Status.REFUSED):
        return Verdict.DIVERGED
    if gap.status is Status.EMPTY:
        return Verdict.VACUOUS
    if gap.lost or (gap.odd and policy.strict_domains):
        return Verdict.DIVERGED
    if gap.compared and gap.noise_kind is NoiseKind.NONE:
        return Verdict.ERROR
    beyond = beyond_noise(gap, policy)
    if beyond and not within_tolerance(gap, policy):
        return Verdict.DIVERGED
    if beyond or gap.status is Status.DTYPE:
        return Verdict.DRIFT
    return Verdict.FAITHFUL if gap.compared or gap.odd else Verdict.VACUOUS


def judge(gaps: Sequence[Gap], policy: Policy, *, notes: Sequence[Note] = (), findings: Iterable[Finding] = ()) -> Verdict:
    """The worst gap decides; nothing compared is VACUOUS."""
    verdicts = [judge_gap(gap, policy) for gap in gaps]
    said = [v for v in verdicts if v is not Verdict.VACUOUS]
    if any(finding.counts for finding in findings):
        said.append(Verdict.DIVERGED)
    if notes and policy.strict_domains:
        said.append(Verdict.DIVERGED)
    return max(said, key=_ORDER.index) if said else Verdict.VACUOUS


def severity(gap: Gap, policy: Policy) -> tuple[int, float]:
    """A sort key: the worst gap has the largest."""
    verdict = judge_gap(gap, policy)
    rank = _ORDER.index(verdict) if verdict in _ORDER else -1
    ratio = max(gap.noise_ratio / policy.noise_limit, gap.worst_ratio / policy.worst_limit)
    return rank, ratio if not math.isnan(ratio) else math.inf
