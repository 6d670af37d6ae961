"""Several backends beside each other: how each stands, who disagrees with whom, and who is right.

The standard's evaluation of the file in float64 is the arbiter: it says what the graph means, whatever the module
meant. Where it can't be had (an operator that it lacks, a model that is too large), the module's truth decides.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from onnxproof.errors import OnnxproofError
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.results import Case, CrossCheck, Gap, Signature, Standing, judging
from onnxproof.runtimes import reference as standard
from onnxproof.runtimes.session.execution import Candidate, feed

Array = np.ndarray[Any, Any]
Answers = Sequence[Array | None]
_ARBITER = "the standard's evaluation in float64"
_TRUTH = "the reference's truth"
_LIMIT_S = 30.0


def compare(
    candidates: Sequence[Candidate],
    reference: Reference,
    case: Case,
    gaps: Sequence[Gap],
    path: Path,
    signature: Signature,
    policy: Policy,
    *,
    limit_s: float = _LIMIT_S,
) -> CrossCheck:
    """Run every backend on one telling case, and set its answers beside the arbiter's and each other's."""
    own = reference.run(case.inputs)
    truth: Answers = reference.truth(case.inputs) or own
    noise = max([_distance(own, truth, place) or 0.0 for place in range(len(own))] + [1e-7])
    ideal = _arbiter(case, path, signature, min(limit_s, _LIMIT_S))
    found = {candidate.backend: _answers(candidate, case) for candidate in candidates}
    limit = policy.noise_limit * noise
    decides = ideal if ideal is not None else truth
    right = tuple(name for name, answers in found.items() if _far(answers, decides) <= limit)
    wrong = tuple(name for name in found if name not in right)
    pairs = [(a, b, _far(found[a], found[b])) for a, b in combinations(found, 2)]
    standings = [
        _standing(name, place, output.name, found[name], truth, ideal, gaps, policy)
        for name in found
        for place, output in enumerate(signature.outputs)
    ]
    arbiter = _ARBITER if ideal is not None else _TRUTH
    faithful = ideal is None or _far(ideal, truth) <= limit
    return CrossCheck(
        case=case.name,
        standings=tuple(standings),
        disagree=tuple((a, b, far) for a, b, far in pairs if far > 2 * limit),
        right=right,
        wrong=wrong,
        arbiter=arbiter,
        words=_words(right, wrong, arbiter, faithful=faithful),
    )


def _standing(
    backend: str,
    place: int,
    output: str,
    answers: Answers | None,
    truth: Answers,
    ideal: Answers | None,
    gaps: Sequence[Gap],
    policy: Policy,
) -> Standing:
    mine = [gap for gap in gaps if gap.backend == backend and gap.output == output]
    counted = [gap for gap in mine if gap.domain is None]
    worst = max(counted or mine, key=lambda gap: judging.severity(gap, policy), default=None)
    return Standing(
        backend=backend,
        output=output,
        verdict=judging.judge(mine, policy),
        cases=len({gap.case for gap in mine}),
        case=worst.case if worst else "",
        noise_ratio=worst.noise_ratio if worst else 0.0,
        max_abs=worst.max_abs if worst else 0.0,
        from_truth=_distance(answers, truth, place),
        from_arbiter=_distance(answers, ideal, place),
    )


def _words(right: Sequence[str], wrong: Sequence[str], arbiter: str, *, faithful: bool) -> str:
    file = "" if faithful else "; the file itself says something else than the reference"
    if not wrong:
        return f"all agree with {arbiter}{file}"
    if not right:
        return f"none agrees with {arbiter}{file}"
    return f"{_list(right)} agree{'s' * (len(right) == 1)} with {arbiter}; {_list(wrong)} {'is' if len(wrong) == 1 else 'are'} wrong{file}"


def _list(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _arbiter(case: Case, path: Path, signature: Signature, limit_s: float) -> Answers | None:
    try:
        session = standard.open(path, "float64")
        session.limit_s = limit_s
        found: Mapping[str, Array | None] = dict(
            zip(session.output_names, session.run(feed(case.inputs, signature)), strict=True)
        )
    except OnnxproofError:
        return None
    return [found.get(output.onnx_name or "") for output in signature.outputs]


def _answers(candidate: Candidate, case: Case) -> Answers | None:
    try:
        return candidate.run(
            case.inputs, isolated=any(array.size == 0 for array in case.inputs.values())
        )
    except OnnxproofError:
        return None


def _far(one: Answers | None, other: Answers | None) -> float:
    """The farthest output; infinite where either gave no answer."""
    if one is None or other is None:
        return float("inf")
    return max((_distance(one, other, place) or 0.0 for place in range(len(other))), default=0.0)


def _distance(one: Answers | None, other: Answers | None, place: int) -> float | None:
    """rms of the difference over the rms of the second; infinite for another shape or where only one is finite."""
    if one is None or other is None:
        return None
    a, b = one[place], other[place]
    if a is None or b is None or a.shape != b.shape:
        return float("inf")
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        off = np.where(same, 0.0, a - b)
        if not np.isfinite(off).all():
            return float("inf")
        scale = (
            float(np.sqrt(np.mean(np.square(b[np.isfinite(b)])))) if np.isfinite(b).any() else 0.0
        )
    gap = float(np.sqrt(np.mean(np.square(off)))) if off.size else 0.0
    return gap / scale if scale else gap
