"""A kernel of the runtime computes something else than the standard says.

What it is: the graph, evaluated by the standard in float64, gives what the module gives; the runtime does not, even
without optimisation.

Why it happens: a kernel takes a shortcut (one-pass variance, a float accumulator for integers, a polynomial that
leaves its range) or has a plain bug.

How to see it: one node's output differs from the standard's for the same inputs.

How to fix it: another version or provider of the runtime, or another formulation; `--repro` writes the bug report.

Example: the sum of int64 values beyond 2**53.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Stage

TITLE = "a kernel of the runtime is off"
PRICE = 6
_SAME = 1e-5


def test(bench: Workbench) -> Tried | str:
    """Locating evaluated the graph by the standard, and found it right."""
    if bench.where.stage is not Stage.RUNTIME:
        return "the graph itself is wrong, whatever runs it"
    named = bench.where.suspects[0] if bench.where.suspects else None
    if named is None:
        return Tried(proven=False, evidence=bench.where.evidence, after=bench.before)
    apart = bench.alone(bench.guilty) if bench.guilty is not None else None
    if apart is None:
        return Tried(
            proven=False,
            evidence=f"{named.node} ({named.op_type}) could not be run by itself",
            after=bench.before,
        )
    if apart <= _SAME:
        return Tried(
            proven=True,
            code="precision",
            after=0.0,
            evidence=f"{named.node} ({named.op_type}) does what the standard says with what it is given; the digits were lost before",
        )
    return Tried(
        proven=True,
        evidence=f"{named.node} ({named.op_type}), run by itself, gives other values than the standard for the same inputs",
        after=0.0,
    )
