"""After the planned cases: climb towards disagreement, and ask the graph in float64 about what is neither noise nor a fault."""

from collections.abc import Callable
from dataclasses import replace

from onnxproof.errors import OnnxproofError
from onnxproof.inputs.search import climb
from onnxproof.inputs.shrink import shrink
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy
from onnxproof.results import Case, Finding, Signature, Verdict, judging
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.verification.budget import Budget, not_reached
from onnxproof.verification.case_reference import RERUNS, ReferenceRefused
from onnxproof.verification.case_runner import Trial, Unconfirmed
from onnxproof.verification.evidence import Request
from onnxproof.verification.observations import LARGE, Observations, elements
from onnxproof.verification.pacing import PASSES_OF_A_CASE, Pacing

_SHARE_OF_CASES = 0.3
"""Of the cases so far, the number that a search may add. Not measured."""
_DOUBTFUL = 2.0
"""Times the noise from which on the graph is asked in float64: healthy models stay below 0.74 there, faults begin at 2.2."""
_SHARE_FOR_GRAPH, _LEAST_FOR_GRAPH_S = 0.05, 1.0
"""Of the budget, and seconds at least, that one answer of the graph in float64 may take."""
_PASSES_FOR_GRAPH = 30
"""Forward passes of the reference that it may take, however short the budget, since a slow machine is slow at both. Not measured."""
_FOR_WANT = frozenset({"too-slow", "out-of-memory"})
"""Refusals for want of time or memory: a missing operator is missing whatever is given."""


def climb_to_disagreement(
    observed: Observations, pacing: Pacing, seed: int, compare: Callable[[Case], float | None]
) -> None:
    """Mutate the cases that came nearest to an alarm, for a share of the number of the others.

    Counted, not timed: the same seed gives the same proof.
    """
    if observed.faulty or not observed.nearest:
        return
    walk = climb(observed.nearest, seed)
    case = next(walk)
    for _ in range(int(len(observed.sizes) * _SHARE_OF_CASES)):
        if pacing.over or observed.faulty:
            break
        case = walk.send(compare(case) or 0.0)


def smaller_witness(
    witness: Case, signature: Signature, trial: Trial, pacing: Pacing, policy: Policy
) -> Case | None:
    """A smaller case that is as bad as the one that the search found, or None."""

    def still_differs(case: Case) -> bool:
        if pacing.over:
            return False
        try:
            gaps = trial.run(case).gaps
        except (ReferenceRefused, Unconfirmed):
            return False
        bad = (Verdict.DRIFT, Verdict.DIVERGED)
        return any(judging.judge_gap(gap, policy) in bad for gap in gaps)

    smaller = shrink(witness, signature, still_differs)
    if smaller is witness:
        return None
    name, about = f"{witness.name}, shrunk", f"{witness.about}, made smaller"
    return replace(smaller, name=name, about=about)


def _limit_for_graph(request: Request, budget: Budget) -> float:
    """Seconds that the graph in float64 may take for one case."""
    return max(
        request.budget_s * _SHARE_FOR_GRAPH,
        _LEAST_FOR_GRAPH_S,
        _PASSES_FOR_GRAPH * budget.pass_s,
    )


def ask_graph_in_float64(
    request: Request,
    observed: Observations,
    trial: Trial,
    *,
    budget: Budget,
    signature: Signature,
    clock: Clock,
    announce: Callable[[str], None],
) -> list[Finding]:
    """Evaluate the graph in float64 on the doubtful cases: there a wrong epsilon has nothing to hide behind."""
    limit = request.policy.noise_limit
    doubtful = [
        case
        for ratio, case in observed.nearest
        if ratio * limit > _DOUBTFUL and elements(case) < LARGE
    ]
    if not doubtful:
        return []
    from onnxproof.runtimes import reference

    announce("asking the graph in float64")
    if budget.far_beyond:
        return [_graph_not_asked("no time was left for it")]
    try:
        session = reference.open(request.path, "float64")
        session.limit_s = _limit_for_graph(request, budget)
        graph = Candidate("reference:float64", request.path, signature, clock, session=session)
        for place, case in enumerate(doubtful):
            enough = budget.affords(PASSES_OF_A_CASE) and budget.affords_reruns(RERUNS)
            if place and not enough:
                what = f"the graph was asked in float64 about {place} of {len(doubtful)} cases that are neither noise nor a fault"
                return [not_reached(what)]
            observed.add_bias(case, trial.bias(case, graph))
    except MemoryError:
        return [_graph_not_asked("there is too little memory")]
    except OnnxproofError as why:
        if why.code in _FOR_WANT:
            return [_graph_not_asked(why.what)]
        what = f"the graph could not be evaluated in float64: {why.what}"
        return [Finding(code="graph-not-asked", what=what)]
    return []


def _graph_not_asked(why: str) -> Finding:
    """Between noise and a fault there is no verdict without this answer."""
    return Finding(
        code="graph-not-asked",
        what=f"a case is neither noise nor a fault, and the graph in float64, which tells the two apart, was not asked: {why}",
        voids=True,
        help="give more time with `--budget`",
    )


def has_own_precision(file: OnnxFile, signature: Signature) -> bool:
    """Whether the file has the reference's precision: one converted to half has rounded weights, and no bias of zero."""
    half = file.half
    return half is None or all(output.dtype == half for output in signature.outputs)
