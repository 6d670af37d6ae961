"""Gaps to a verdict, by a policy that is data. Judging never measures, so a stored proof can be judged again."""

import math
from collections.abc import Iterable, Sequence

from onnxproof.options import Policy
from onnxproof.results import Finding, Gap, NoiseKind, Note, Status, Verdict, Void
from onnxproof.results.gaps import RTOL_GRID

QUANTIZED = (NoiseKind.SIMULATED, NoiseKind.TWIN)
"""Kinds of noise of a quantized candidate."""
NOT_CONFIRMED = "not-confirmed"
"""The finding that a case differs, and that no time was left to measure the noise again."""
_FAR = 4.0
"""A runtime that adds this many times what still passes is not a drift."""
_FILLS, _OF_LIMIT = 0.5, 0.4
"""An error of this share of an output's own size is no rounding unless the noise nearly is, too: then this share of the limit counts.

Answers of zero pass `noise_limit` where the noise is a twelfth of the output. Healthy chaotic models (a logistic map, noise 0.07 to
0.15 of the output; sharp attention, 0.33) stay at 1.4 times the noise there: two roundings of one chaos are apart by the root of two.
"""
_ORDER = (Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED, Verdict.ERROR)


def beyond_noise(gap: Gap, policy: Policy) -> bool:
    """True when rounding does not explain the gap; for a quantized candidate, when its quantization does not."""
    if gap.noise_kind in QUANTIZED:
        return not gap.noise_ratio <= policy.runtime_limit
    if gap.bias is not None and gap.bias > policy.bias_limit:
        return True
    if gap.mismatches:
        return gap.mismatches > gap.unstable and gap.noise_ratio > policy.noise_limit / 4
    if (
        _fills(gap)
        and gap.noise_ratio > _OF_LIMIT * policy.noise_limit
        and not within_tolerance(gap, policy)
    ):
        return True
    return not (
        gap.noise_ratio <= policy.noise_limit and gap.worst_ratio <= policy.worst_limit
    )  # an undefined ratio is beyond


def _fills(gap: Gap) -> bool:
    """Whether an error is as large as the output; a residual, which is nothing but noise, has no size of its own."""
    return gap.noise < gap.scale and gap.rms > _FILLS * gap.scale


def within_tolerance(gap: Gap, policy: Policy) -> bool:
    """What `allclose` would say, from the stored numbers; between two rtol of the grid the smaller one counts."""
    if not gap.atol_needed:
        return gap.allowance <= 1.0
    place = max(i for i, rtol in enumerate(RTOL_GRID) if rtol <= policy.rtol or i == 0)
    return gap.atol_needed[min(place, len(gap.atol_needed) - 1)] <= policy.atol


def agrees(gap: Gap, policy: Policy) -> bool:
    """The same shape, the same NaN and infinities, and the rest within the classical tolerance: the dtype alone may differ."""
    return (
        gap.status not in (Status.SHAPE, Status.MISSING)
        and not gap.lost
        and not gap.odd
        and within_tolerance(gap, policy)
    )


def judge_gap(gap: Gap, policy: Policy) -> Verdict:
    """One gap; where the output proves nothing, agreement is VACUOUS, and beside a random reference every number is."""
    if gap.void is Void.RANDOM and gap.status not in (Status.MISSING, Status.REFUSED):
        return Verdict.VACUOUS
    verdict = _judge_gap(gap, policy)
    return Verdict.VACUOUS if gap.void is not None and verdict is Verdict.FAITHFUL else verdict


def _judge_gap(gap: Gap, policy: Policy) -> Verdict:
    """By the numbers alone. A gap in an odd domain stays FAITHFUL here: it is a note, unless the policy makes notes count."""
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
    if gap.noise_kind in QUANTIZED:
        return (
            Verdict.FAITHFUL
            if not beyond
            else Verdict.DRIFT
            if gap.noise_ratio <= _FAR * policy.runtime_limit
            else Verdict.DIVERGED
        )
    if beyond and not within_tolerance(gap, policy):
        return Verdict.DIVERGED
    if beyond or gap.status is Status.DTYPE:
        return Verdict.DRIFT
    return Verdict.FAITHFUL if gap.compared or gap.odd else Verdict.VACUOUS


def quality(gaps: Sequence[Gap], policy: Policy) -> Verdict:
    """Whether a quantized graph still says what the reference says: the energies of all its ordinary cases together, by output and backend.

    The user's own data is asked, or else the example inputs. Whatever was made up lies beyond the graph's ranges, and says nothing here.
    """
    found = asked(gaps)
    worst = Verdict.FAITHFUL
    for key in {(gap.backend, gap.output) for gap in found}:
        mine = [gap for gap in found if (gap.backend, gap.output) == key]
        level, clipped = pooled_db(mine), sum(gap.clipped or 0.0 for gap in mine) / len(mine)
        least = policy.twin_db if mine[0].noise_kind is NoiseKind.TWIN else policy.drift_db
        good = level >= least and clipped <= policy.clip_limit
        said = (
            Verdict.DIVERGED
            if not level >= policy.diverged_db
            else Verdict.FAITHFUL
            if good
            else Verdict.DRIFT
        )
        worst = max(worst, said, key=_ORDER.index)
    return worst


def _asked(gap: Gap) -> bool:
    """True for what quality is judged by."""
    return (
        gap.ordinary
        and (gap.group == "data" or gap.case == "example")
        and gap.sqnr_db is not None
        and gap.domain is None
    )


def asked(gaps: Sequence[Gap]) -> list[Gap]:
    """What a quantized candidate's quality is judged by: the user's own data where there is some, else the example inputs."""
    found = [gap for gap in gaps if _asked(gap)]
    return [gap for gap in found if gap.group == "data"] or found


def pooled_db(gaps: Sequence[Gap]) -> float:
    """The SQNR of several cases as one: each weighs by the energy of its signal."""
    signal = sum(gap.scale * gap.scale * gap.compared for gap in gaps)
    error = sum(_error_energy(gap) for gap in gaps)
    if error == 0:
        return math.inf
    return 10 * math.log10(signal / error) if signal > 0 and math.isfinite(error) else -math.inf


def _error_energy(gap: Gap) -> float:
    """The energy of a case's error; where the truth is all zeros, decibels are undefined, and the largest error bounds it."""
    if gap.scale == 0:
        return gap.max_abs * gap.max_abs * gap.compared
    level = gap.sqnr_db if gap.sqnr_db is not None else 0.0
    return gap.scale * gap.scale * gap.compared * _ten_to(-level / 10)


def level_words(level: float) -> str:
    """Decibels for people.

    >>> level_words(31.94), level_words(math.inf), level_words(-math.inf)
    ('31.9 dB', 'exact', 'nothing left')
    """
    if math.isfinite(level):
        return f"{level:.1f} dB"
    return "exact" if level > 0 else "nothing left"


def _ten_to(power: float) -> float:
    """10 to a power, infinite beyond what a float holds."""
    return 10**power if power < 308 else math.inf


def judge(
    gaps: Sequence[Gap],
    policy: Policy,
    *,
    notes: Sequence[Note] = (),
    findings: Iterable[Finding] = (),
) -> Verdict:
    """The worst gap decides; nothing compared is VACUOUS, and so is a FAITHFUL that a finding takes away."""
    findings = tuple(findings)
    verdicts = [judge_gap(gap, policy) for gap in gaps]
    said: list[Verdict] = [v for v in verdicts if v is not Verdict.VACUOUS]
    if any(finding.counts for finding in findings):
        said.append(Verdict.DIVERGED)
    if notes and policy.strict_domains:
        said.append(Verdict.DIVERGED)
    if said:
        said.append(quality(gaps, policy))
    if said and any(finding.doubts for finding in findings):
        said.append(Verdict.DRIFT)
    verdict = max(said, key=_ORDER.index) if said else Verdict.VACUOUS
    if verdict is Verdict.FAITHFUL and any(finding.voids for finding in findings):
        return Verdict.VACUOUS
    if verdict is Verdict.DRIFT and any(finding.code == NOT_CONFIRMED for finding in findings):
        return (
            Verdict.VACUOUS
        )  # a drift may pass, and nothing may pass beside an alarm that nobody confirmed
    return verdict


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The one that decides; VACUOUS decides nothing."""
    return max(one, other, key=lambda verdict: _ORDER.index(verdict) if verdict in _ORDER else -1)


def severity(gap: Gap, policy: Policy) -> tuple[int, float]:
    """A sort key: the worst gap has the largest."""
    verdict = judge_gap(gap, policy)
    if _asked(gap) and verdict in _ORDER:
        verdict = max(verdict, quality([gap], policy), key=_ORDER.index)
    rank = _ORDER.index(verdict) if verdict in _ORDER else -1
    ratio = max(
        gap.noise_ratio / policy.noise_limit,
        gap.worst_ratio / policy.worst_limit,
        (gap.bias or 0.0) / policy.bias_limit,
    )
    if gap.noise_kind in QUANTIZED:
        ratio = max(
            gap.noise_ratio / policy.runtime_limit,
            _ten_to((policy.drift_db - (gap.sqnr_db or 0.0)) / 20) if _asked(gap) else 0.0,
        )
    return rank, ratio if not math.isnan(ratio) else math.inf
