"""A proof in words: the verdict in one sentence, and the facts that a log should have."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxproof.results import judging
from onnxproof.results.gaps import Finding, Gap
from onnxproof.results.verdicts import NoiseKind, Status, Verdict
from onnxproof.system.text import visible

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof

_LONGEST = 400
"""Characters of a line of the outline: names come from models."""
_BAD = (Verdict.DRIFT, Verdict.DIVERGED)
_TWIN_WORDS = {
    Verdict.FAITHFUL: "matches the quantized",
    Verdict.DRIFT: "is further than it should be from the quantized",
    Verdict.DIVERGED: "differs from the quantized",
}
"""Where the reference is quantized as well."""
_QUANTIZED_WORDS = {
    Verdict.FAITHFUL: "is a sound quantization of",
    Verdict.DRIFT: "loses more than quantization should of",
    Verdict.DIVERGED: "differs from",
}


def verdict_sentence(proof: "Proof") -> str:
    """The verdict in one sentence."""
    worst = proof.worst
    if proof.verdict is Verdict.ERROR:
        return f"the proof could not be completed: {proof.error}"
    if proof.verdict is Verdict.VACUOUS or not proof.gaps:
        return _nothing_proven(proof)
    level = proof.quality()
    if level is not None and worst is not None and not worst.lost and _has_values(worst):
        return _quantized_sentence(proof, level)
    if proof.verdict is Verdict.FAITHFUL or worst is None:
        return _faithful_sentence(proof)
    return _bad_sentence(proof, worst)


def _faithful_sentence(proof: "Proof") -> str:
    count = len({gap.case for gap in proof.gaps})
    cases = "1 case" if count == 1 else f"{count} cases"
    return (
        f"{proof.candidate} matches {proof.subject}: {cases}, "
        f"{_largest_ratio(proof)}{_left_out(proof)}"
    )


def _bad_sentence(proof: "Proof", worst: Gap) -> str:
    counted = [finding for finding in proof.findings if finding.counts]
    if counted and judging.judge_gap(worst, proof.policy) not in _BAD:
        return f"{proof.candidate} differs from {proof.subject}: {counted[0].what}"
    deciding = _deciding_finding(proof)
    if deciding is not None and proof.verdict is Verdict.DRIFT:
        return f"{proof.candidate} drifts from {proof.subject}: {deciding.what}"
    how = _size(worst) if _has_values(worst) else worst.detail
    where = f"output `{worst.output}`, case `{worst.case}` on {worst.backend}"
    if proof.verdict is Verdict.DRIFT:
        return f"{proof.candidate} drifts from {proof.subject}: {where}, {how}"
    return f"{proof.candidate} differs from {proof.subject}: {where}, {how}"


def _has_values(gap: Gap) -> bool:
    return gap.status.value in ("compared", "dtype")


def _nothing_proven(proof: "Proof") -> str:
    """Why nothing is proven: by the first finding that says so."""
    reason = next((finding.what for finding in proof.findings if finding.voids), "")
    if not reason:
        return "nothing was compared, so nothing is proven"
    if "not enough was compared" in reason:
        return reason
    return f"nothing is proven: {reason}"


def _largest_ratio(proof: "Proof") -> str:
    """The largest ratio of what counts."""
    counted = [gap for gap in proof.gaps if gap.domain is None and gap.void is None]
    if not counted:
        return "and every difference is a note"
    ratio = max(gap.noise_ratio for gap in counted)
    whose = f" of {proof.half} itself" if proof.half else ""
    return f"at most {ratio:.1f} times the rounding noise{whose}"


def _left_out(proof: "Proof") -> str:
    """Words for a run that left cases out; empty for a whole one."""
    if proof.chosen:
        return "; only chosen cases were run"
    if proof.complete:
        return ""
    return f"; not all cases were run, since the budget of {proof.budget_s:g} s ended"


def _quantized_sentence(proof: "Proof", level: float) -> str:
    counted = [gap for gap in proof.gaps if gap.domain is None]
    quantized = [gap for gap in counted if gap.noise_kind in judging.QUANTIZED]
    most = max((gap.noise_ratio for gap in quantized), default=0.0)
    judged = judging.asked(proof.gaps)
    clipped = judging.clipped_by_file(judged)
    cut = ""
    if clipped > proof.policy.clip_limit:
        cut = f", {clipped:.2%} of the inputs clipped"
    lost = judging.saturation_db(judged)
    if lost > judging.SATURATION_LIMIT_DB:
        cut += f", {lost:.1f} dB lost to 16-bit ranges that clip"
    word = _words_for(judged[0])[proof.verdict]
    tail = ""
    deciding = _deciding_finding(proof)
    if deciding is not None:
        word = "may be no sound quantization of"
        if deciding.counts:
            word = "differs from"
        tail = f": {deciding.what}"
    data = "your data" if judged[0].group == "data" else "the example inputs"
    return (
        f"{proof.candidate} {word} {proof.subject}{tail}: {judging.level_words(level)} on {data}{cut}; "
        f"the runtime adds {most:.2g} times what the graph's own quantization costs{_left_out(proof)}"
    )


def _words_for(gap: Gap) -> dict[Verdict, str]:
    return _TWIN_WORDS if gap.noise_kind is NoiseKind.TWIN else _QUANTIZED_WORDS


def _deciding_finding(proof: "Proof") -> Finding | None:
    """The finding that alone keeps the verdict from FAITHFUL, or None where what was measured does."""
    counting = [finding for finding in proof.findings if finding.counts]
    doubting = [finding for finding in proof.findings if finding.doubts and not finding.counts]
    findings = [*counting, *doubting]
    measured = judging.judge(proof.gaps, proof.policy, notes=proof.notes)
    if not findings or measured is not Verdict.FAITHFUL:
        return None
    return findings[0]


def outline(proof: "Proof") -> str:
    """The proof in a few lines, for Python's prompt and for a debugger."""
    sentence = verdict_sentence(proof).splitlines()[0]
    lines = [f"<Proof {proof.verdict.value.upper()}: {sentence}"]
    location = proof.location
    if location is not None:
        nodes = ", ".join(location.nodes[:3]) or "unknown"
        lines.append(f"where: stage {location.stage.value}, {nodes}")
    words = {True: "proven", False: "possible"}
    for cause in proof.causes[:2]:
        lines.append(f"{words[cause.proven]} cause {cause.code}: {cause.title}")
    if proof.findings:
        codes = dict.fromkeys(finding.code for finding in proof.findings)
        lines.append(f"findings: {', '.join(codes)}")
    return "\n  ".join(visible(line)[:_LONGEST] for line in lines) + ">"


def facts(proof: "Proof") -> Sequence[str]:
    """What a log should have beside the sentence."""
    bad = {gap.case for gap in proof.gaps if judging.judge_gap(gap, proof.policy) in _BAD}
    lines = [
        *_location_facts(proof),
        *_cause_facts(proof),
        *(finding.what for finding in proof.findings[:3]),
    ]
    if bad or proof.quality() is None:  # where quality decides, no single case need differ
        lines.append(f"{len(bad)} of {len({gap.case for gap in proof.gaps})} cases differ")
    return lines


def _location_facts(proof: "Proof") -> list[str]:
    location = proof.location
    if location is None:
        return []
    nodes = ", ".join(location.nodes[:3]) or "unknown"
    fact = f"stage {location.stage.value}, node {nodes}"
    source = location.source
    if source is not None:
        fact += f" {source.file}:{source.line}: `{source.text}`"
    return [fact]


def _cause_facts(proof: "Proof") -> list[str]:
    words = {True: "proven", False: "likely"}
    return [
        f"cause {words[cause.proven]}: {cause.code}: {cause.title}; {cause.evidence}"
        for cause in proof.causes[:2]
    ]


def _size(gap: Gap) -> str:
    """How large a gap is, in the unit that fits it."""
    if gap.lost:
        return f"{gap.lost} elements are NaN or infinite where the reference is finite"
    if gap.mismatches:
        if gap.detail and gap.status is Status.COMPARED:  # strings, and what they are on both sides
            return f"{gap.mismatches} of {gap.compared} strings differ: {gap.detail}"
        return f"{gap.mismatches} of {gap.compared} integers differ"
    within = "passes" if gap.allowance <= 1 else "fails"
    tail = f"(max abs {gap.max_abs:.3g}; allclose {within})"
    if gap.bias is not None and gap.bias >= gap.noise_ratio / 2:
        return f"{gap.noise_ratio:.1f} times the rounding noise, and the graph itself, in float64, {gap.bias:.1f} times {tail}"
    return f"{gap.noise_ratio:,.0f} times the rounding noise {tail}"
