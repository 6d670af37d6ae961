"""Several backends compared: how each stands, who disagrees with whom, and who is right.

The standard's evaluation of the file in float64 is the arbiter: it says what the graph means, whatever the module
meant. Where it can't be had (an operator that it lacks, a model that is too large), the module's truth decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
Outputs = Sequence[Array | None]
_ARBITER = "the standard's evaluation in float64"
_TRUTH = "the reference's truth"
_LIMIT_S = 30.0
"""Seconds for the evaluation in float64 (not measured)."""
_LEAST_NOISE = 1e-7
"""Noise is at least about one step of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answers:
    """What everybody answers to one case."""

    truth: Outputs
    graph: Outputs | None
    """The standard's evaluation of the file in float64; None where it can't be had."""
    by_backend: Mapping[str, Outputs | None]

    @property
    def arbiter(self) -> Outputs:
        """The answer that decides who is right."""
        if self.graph is None:
            return self.truth
        return self.graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The case that everybody is asked, and the reference's answer."""

    case: Case
    reference: Outputs
    truth: Outputs


def ask(model: Reference, witness: Case | None) -> Question:
    """The reference's answer to the witness of a fault, or to the example where there is none."""
    case = witness
    if case is None:
        inputs = model.example()
        case = Case(name="example", group="ordinary", about="the example inputs", inputs=inputs)
    reference = model.run(case.inputs)
    truth = model.truth(case.inputs) or reference
    return Question(case=case, reference=reference, truth=truth)


def compare(
    candidates: Sequence[Candidate],
    question: Question,
    gaps: Sequence[Gap],
    path: Path,
    signature: Signature,
    policy: Policy,
    *,
    limit_s: float = _LIMIT_S,
) -> CrossCheck:
    """Run every backend on one case, and compare its answers with the arbiter's and each other's."""
    case, reference, truth = question.case, question.reference, question.truth
    answers = _Answers(
        truth=truth,
        graph=_evaluate_graph(case, path, signature, min(limit_s, _LIMIT_S)),
        by_backend={candidate.backend: _run(candidate, case) for candidate in candidates},
    )
    noises = [_distance(reference, truth, place) or 0.0 for place in range(len(reference))]
    limit = policy.noise_limit * max([*noises, _LEAST_NOISE])
    right = []
    wrong = []
    for backend, outputs in answers.by_backend.items():
        if _largest_distance(outputs, answers.arbiter) <= limit:
            right.append(backend)
        else:
            wrong.append(backend)
    arbiter = _TRUTH
    faithful = True
    if answers.graph is not None:
        arbiter = _ARBITER
        faithful = _largest_distance(answers.graph, truth) <= limit
    return CrossCheck(
        case=case.name,
        standings=tuple(_standings(answers, signature, gaps, policy)),
        disagree=tuple(_disagreements(answers.by_backend, 2 * limit)),
        right=tuple(right),
        wrong=tuple(wrong),
        arbiter=arbiter,
        words=_words(right, wrong, arbiter, faithful=faithful),
    )


def _disagreements(
    by_backend: Mapping[str, Outputs | None], limit: float
) -> Iterator[tuple[str, str, float]]:
    """Pairs of backends that are farther apart than the limit, with their distance."""
    for one, other in combinations(by_backend, 2):
        distance = _largest_distance(by_backend[one], by_backend[other])
        if distance > limit:
            yield one, other, distance


def _standings(
    answers: _Answers,
    signature: Signature,
    gaps: Sequence[Gap],
    policy: Policy,
) -> Iterator[Standing]:
    """How each output of each backend stands: by all cases, and by its distances on this one."""
    for backend, outputs in answers.by_backend.items():
        for place, output in enumerate(signature.outputs):
            own_gaps = [gap for gap in gaps if gap.backend == backend and gap.output == output.name]
            standing = _standing_by_gaps(backend, output.name, own_gaps, policy)
            yield replace(
                standing,
                from_truth=_distance(outputs, answers.truth, place),
                from_arbiter=_distance(outputs, answers.graph, place),
            )


def _standing_by_gaps(
    backend: str,
    output: str,
    gaps: Sequence[Gap],
    policy: Policy,
) -> Standing:
    standing = Standing(
        backend=backend,
        output=output,
        verdict=judging.judge(gaps, policy),
        cases=len({gap.case for gap in gaps}),
    )
    counted = [gap for gap in gaps if gap.domain is None] or gaps
    if not counted:
        return standing
    worst = max(counted, key=lambda gap: judging.severity(gap, policy))
    return replace(standing, case=worst.case, noise_ratio=worst.noise_ratio, max_abs=worst.max_abs)


def _words(
    right: Sequence[str],
    wrong: Sequence[str],
    arbiter: str,
    *,
    faithful: bool,
) -> str:
    """One sentence on who agrees with the arbiter."""
    file = "; the file itself says something else than the reference"
    if faithful:
        file = ""
    if not wrong:
        return f"all agree with {arbiter}{file}"
    if not right:
        return f"none agrees with {arbiter}{file}"
    agree = "agrees" if len(right) == 1 else "agree"
    are = "is" if len(wrong) == 1 else "are"
    return f"{_list(right)} {agree} with {arbiter}; {_list(wrong)} {are} wrong{file}"


def _list(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _evaluate_graph(
    case: Case,
    path: Path,
    signature: Signature,
    limit_s: float,
) -> Outputs | None:
    """The file by the standard's evaluator in float64; None where that lacks an operator or the time."""
    try:
        session = standard.open(path, "float64")
        session.limit_s = limit_s
        outputs = session.run(feed(case.inputs, signature))
        by_name = dict(zip(session.output_names, outputs, strict=True))
    except OnnxproofError:
        return None
    return [by_name.get(output.onnx_name or "") for output in signature.outputs]


def _run(candidate: Candidate, case: Case) -> Outputs | None:
    has_empty_input = any(array.size == 0 for array in case.inputs.values())
    try:
        return candidate.run(case.inputs, isolated=has_empty_input)
    except OnnxproofError:
        return None


def _largest_distance(one: Outputs | None, other: Outputs | None) -> float:
    """The distance of the farthest output; infinite where either gave no answer."""
    if one is None or other is None:
        return float("inf")
    distances = [_distance(one, other, place) or 0.0 for place in range(len(other))]
    return max(distances, default=0.0)


def _distance(
    one: Outputs | None,
    other: Outputs | None,
    place: int,
) -> float | None:
    """rms of the difference over the rms of the second; infinite for another shape or where only one is finite."""
    if one is None or other is None:
        return None
    first = one[place]
    second = other[place]
    if first is None or second is None or first.shape != second.shape:
        return float("inf")
    first = first.astype(np.float64)
    second = second.astype(np.float64)
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(all="ignore"):
        difference = np.where(same, 0.0, first - second)
        if not np.isfinite(difference).all():
            return float("inf")
        scale = _rms(second[np.isfinite(second)])
    return _rms(difference) / (scale or 1.0)


def _rms(array: Array) -> float:
    if not array.size:
        return 0.0
    return float(np.sqrt(np.mean(np.square(array))))
