"""Gaps to a verdict, by a policy that is data. Judging never measures, so a stored proof can be judged again."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

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
ROUNDING_SLACK_DB = 1.5
"""What a file may lose beyond its reference with weights rounded to the nearest of as few bits.

`python -m bench.few_bits`: 104 healthy files (eight networks, ONNX Runtime's rounding with and without zero points, HQQ, columns in groups; blocks of 16 to 128) lose -2.7 to 0.5 dB more.
Of 770 faults in them 161 lie within 1.5, 108 within 0.75, 230 within 3: those are left to the check of the weights themselves. GPTQ and `w4`, which fit the outputs, are not among them.
"""
KL_LIMIT = 0.1
"""Nats a token that a language model may lose to its few bits, about a tenth of perplexity: beyond it is DRIFT.

The same run: 39 healthy files of trained models cost 0.0006 to 0.002, 39 of random decoders 0.018 to 0.054. At 0.05 two of the random ones are a drift; of 587 faults 235 lie beyond 0.1, 196 beyond 0.2.
"""
SATURATION_LIMIT_DB = 10.0
"""Clipping by 16-bit ranges that takes more than this is DRIFT: nine tenths of the error are then no rounding. Eight bits trade clipping for finer steps, 16 need not.

Four nets trained on digits, 16-bit activations, other digits: calibrated on 128 digits they lose 0.0 to 3.0 dB, on 32 of them 5.8 to 19, on 8 of them 14 to 29, on digits scaled by 0.8 28 to 32.
At 5 all nets calibrated on 32 digits would be a drift, at 20 none of them and one of four on 8.
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
    large = _fills(gap) and gap.noise_ratio > _OF_LIMIT * policy.noise_limit
    if large and not within_tolerance(gap, policy):
        return True
    within = gap.noise_ratio <= policy.noise_limit and gap.worst_ratio <= policy.worst_limit
    return not within  # an undefined ratio is beyond


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
        return _faithful_if(gap.compared > 0)
    if gap.status in (Status.SHAPE, Status.MISSING, Status.REFUSED):
        return Verdict.DIVERGED
    if gap.status is Status.EMPTY:
        return Verdict.VACUOUS
    if gap.lost or (gap.odd and policy.strict_domains):
        return Verdict.DIVERGED
    if gap.compared and gap.noise_kind is NoiseKind.NONE:
        return Verdict.ERROR
    return _judge_values(gap, policy)


def _judge_values(gap: Gap, policy: Policy) -> Verdict:
    beyond = beyond_noise(gap, policy)
    if gap.noise_kind in QUANTIZED:
        if not beyond:
            return Verdict.FAITHFUL
        near = gap.noise_ratio <= _FAR * policy.runtime_limit
        return Verdict.DRIFT if near else Verdict.DIVERGED
    if beyond and not within_tolerance(gap, policy):
        return Verdict.DIVERGED
    if beyond or gap.status is Status.DTYPE:
        return Verdict.DRIFT
    return _faithful_if(gap.compared > 0 or gap.odd > 0)


def _faithful_if(compared: bool) -> Verdict:
    """Nothing compared is never a pass."""
    return Verdict.FAITHFUL if compared else Verdict.VACUOUS


def quality(gaps: Sequence[Gap], policy: Policy) -> Verdict:
    """Whether a quantized graph still says what the reference says: the energies of all its ordinary cases together, by output and backend.

    The user's own data is asked, or else the example inputs. Whatever was made up lies beyond the graph's ranges, and says nothing here.
    """
    verdicts = [_output_quality(group, policy) for group in by_output(asked(gaps))]
    return max(verdicts, key=_ORDER.index, default=Verdict.FAITHFUL)


def _output_quality(gaps: Sequence[Gap], policy: Policy) -> Verdict:
    """The same for one output on one backend."""
    level = pooled_db(gaps)
    least = policy.drift_db
    if gaps[0].noise_kind is NoiseKind.TWIN:
        least = policy.twin_db
    if explained_by_bits(gaps):
        lost = level < least and not _bits_lose_little(gaps, policy)
    elif not level >= policy.diverged_db:
        return Verdict.DIVERGED
    else:
        lost = level < least
    clipped = clipped_by_file(gaps) > policy.clip_limit
    if lost or clipped or saturation_db(gaps) > SATURATION_LIMIT_DB:
        return Verdict.DRIFT
    return Verdict.FAITHFUL


def _bits_lose_little(gaps: Sequence[Gap], policy: Policy) -> bool:
    """A loss that few bits explain is no fault: is it small, by KL for a language model and else by decibels?"""
    kl = pooled_kl(gaps)
    if kl is None:
        return pooled_db(gaps) >= policy.diverged_db
    return kl <= KL_LIMIT


def pooled_kl(gaps: Sequence[Gap]) -> float | None:
    """The KL of several cases as one, in nats a token; None where a case has none."""
    weights = [gap.compared for gap in gaps]
    levels = [gap.kl for gap in gaps if gap.kl is not None]
    if len(levels) < len(gaps) or not sum(weights):
        return None
    return sum(w * kl for w, kl in zip(weights, levels, strict=True)) / sum(weights)


def saturation_db(gaps: Sequence[Gap]) -> float:
    """What clipping at the ends of 16-bit types takes from the answers, all cases together, in dB."""
    measured = [gap for gap in gaps if gap.unsaturated_db is not None]
    if not measured:
        return 0.0
    unsaturated = [replace(gap, sqnr_db=gap.unsaturated_db) for gap in measured]
    lost = pooled_db(unsaturated) - pooled_db(measured)
    return 0.0 if math.isnan(lost) else lost


def explained_by_bits(gaps: Sequence[Gap]) -> bool:
    """Whether the reference itself loses about as much with its weights in as few bits."""
    expected = rounding_db(gaps)
    return expected is not None and pooled_db(gaps) >= expected - ROUNDING_SLACK_DB


def rounding_db(gaps: Sequence[Gap]) -> float | None:
    """What the reference keeps with its own weights in as few bits, all cases together; None where nobody asked."""
    measured = [gap for gap in gaps if gap.rounding_db is not None]
    if not measured or len(measured) < len(gaps):
        return None
    return pooled_db([replace(gap, sqnr_db=gap.rounding_db) for gap in measured])


def by_output(gaps: Sequence[Gap]) -> list[list[Gap]]:
    """The gaps of each output on each backend."""
    groups: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        groups.setdefault((gap.backend, gap.output), []).append(gap)
    return list(groups.values())


def clipped_share(gaps: Sequence[Gap]) -> float:
    """The mean share of input values beyond the first rounding's range."""
    return sum(gap.clipped or 0.0 for gap in gaps) / max(len(gaps), 1)


def clipped_by_file(gaps: Sequence[Gap]) -> float:
    """The same for what only the candidate clips: nothing where the reference is quantized as well, since it rounds these inputs alike."""
    return clipped_share([gap for gap in gaps if gap.noise_kind is not NoiseKind.TWIN])


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
    deciding: list[Verdict] = [verdict for verdict in verdicts if verdict is not Verdict.VACUOUS]
    if any(finding.counts for finding in findings):
        deciding.append(Verdict.DIVERGED)
    if notes and policy.strict_domains:
        deciding.append(Verdict.DIVERGED)
    if not deciding:
        return Verdict.VACUOUS
    deciding.append(quality(gaps, policy))
    if any(finding.doubts for finding in findings):
        deciding.append(Verdict.DRIFT)
    return _unless_void(max(deciding, key=_ORDER.index), findings)


def _unless_void(verdict: Verdict, findings: Sequence[Finding]) -> Verdict:
    """A drift may pass, and nothing may pass beside an alarm that nobody confirmed."""
    if verdict is Verdict.FAITHFUL and any(finding.voids for finding in findings):
        return Verdict.VACUOUS
    unconfirmed = any(finding.code == NOT_CONFIRMED for finding in findings)
    if verdict is Verdict.DRIFT and unconfirmed:
        return Verdict.VACUOUS
    return verdict


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The one that decides; VACUOUS decides nothing."""
    return max(one, other, key=_rank)


def _rank(verdict: Verdict) -> int:
    return _ORDER.index(verdict) if verdict in _ORDER else -1


def severity(gap: Gap, policy: Policy) -> tuple[int, float]:
    """A sort key: the worst gap has the largest."""
    verdict = judge_gap(gap, policy)
    if _asked(gap) and verdict in _ORDER:
        verdict = worse(verdict, quality([gap], policy))
    ratio = _ratio_to_limit(gap, policy)
    return _rank(verdict), math.inf if math.isnan(ratio) else ratio


def _ratio_to_limit(gap: Gap, policy: Policy) -> float:
    """How near a gap is to its limit: 1 is at it."""
    if gap.noise_kind not in QUANTIZED:
        return max(
            gap.noise_ratio / policy.noise_limit,
            gap.worst_ratio / policy.worst_limit,
            (gap.bias or 0.0) / policy.bias_limit,
        )
    runtime = gap.noise_ratio / policy.runtime_limit
    if not _asked(gap):
        return max(runtime, 0.0)
    return max(runtime, _ten_to((policy.drift_db - (gap.sqnr_db or 0.0)) / 20))
