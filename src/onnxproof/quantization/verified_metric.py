"""The task's own metric for a verification: the reference and the file on the same samples, judged by a paired interval and never by a fixed percentage."""

import math
from typing import Any

from onnxproof.errors import InputError
from onnxproof.quantization.evaluation import call_function, load_function, predict_by_name
from onnxproof.quantization.paired_metric import Metric, compare_paired
from onnxproof.results import Finding
from onnxproof.runtimes.session.execution import Candidate, Clock
from onnxproof.verification.evidence import Evidence


def findings(evidence: Evidence, evaluate: Any) -> list[Finding]:
    """One for each backend: the drop with its interval; it fails where the interval lies wholly on the side of a loss."""
    function = load_function(evaluate)
    if function is None:
        raise InputError(
            "bad-evaluator",
            f"evaluate is a {type(evaluate).__name__}",
            help="give a function of predict that returns one score a sample: `eval.py:metric`",
        )
    names = [info.name for info in evidence.signature.inputs]
    before = call_function(function, predict_by_name(names, evidence.reference.run))
    told = []
    for backend in evidence.request.backends:
        candidate = Candidate(backend, evidence.request.path, evidence.signature, Clock())
        try:
            after = call_function(function, predict_by_name(names, candidate.run))
        finally:
            candidate.close()
        if after.shape != before.shape:
            raise InputError(
                "evaluator-shape",
                f"the evaluator gave {before.size} scores for the reference and {after.size} for the file",
            )
        told.append(describe(compare_paired(before, after), backend))
    return told


def describe(metric: Metric, backend: str) -> Finding:
    """The drop in words, and how many samples would tell more."""
    what = (
        f"metric on {backend}: {metric.before:.4g} for the reference, {metric.after:.4g} for the file; a drop of {metric.drop:.3g}, "
        f"between {metric.low:.3g} and {metric.high:.3g} at {metric.confidence:.0%} on {metric.samples} samples, of which {metric.changed} changed their score"
    )
    if metric.low > 0:
        return Finding(
            code="metric-drop",
            what=what,
            fails=True,
            help="the samples tell this drop from chance",
        )
    needed = samples_to_tell(metric)
    advice = f"a drop beyond {metric.high:.3g} is ruled out"
    if needed is not None:
        advice += f"; about {needed:,} samples would tell this drop from none, if it stays as it is"
    return Finding(code="metric", what=what, help=advice)


def samples_to_tell(metric: Metric) -> int | None:
    """About how many samples would tell the drop from none: a width falls with the root of the samples; None where there is no drop, or one score only."""
    width = metric.drop - metric.low
    if metric.drop <= 0 or not math.isfinite(width):
        return None
    return math.ceil(1.02 * metric.samples * (width / metric.drop) ** 2)
