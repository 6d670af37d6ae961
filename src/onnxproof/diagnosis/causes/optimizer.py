"""The runtime's graph optimizer changes the answers.

What it is: the file is right, and right when it is run without optimisation; with it, a fusion or a simplification
computes something else.

Why it happens: fusions match patterns, and a pattern may hold a detail (an epsilon, a scale, a second user) that the
fused kernel does not.

How to see it: `ort:disabled` agrees with the module, `ort:all` does not; disabling one optimizer by name mends it.

How to fix it: open the session with `disabled_optimizers=[NAME]`, and report it with the repro.

Example: two Q/DQ pairs with different scales are merged into one.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.results import Fix, Stage

TITLE = "an optimizer of the runtime changes the answers"
PRICE = 1


def test(workbench: Workbench) -> Tried | str:
    """Bisection named the optimizer; without it the answers are right."""
    if workbench.location.stage is not Stage.OPTIMIZER:
        return "the fault shows without optimisation, too"
    name = workbench.location.optimizer
    if name is None:
        return Tried(
            evidence="right without optimisation, wrong with it; no single optimizer could be named",
            after=workbench.distance(None),
        )
    tried = workbench.try_counterfactual(
        workbench.mended_file(disabled=(name,)),
        f"without the optimizer {name} the answers are right",
        options=(name,),
        fix=Fix(
            kind="session",
            what=f"onnxruntime.InferenceSession(..., disabled_optimizers=[{name!r}])",
        ),
    )
    if tried is not None:
        return tried
    after = workbench.distance(None, disabled=(name,))
    return Tried(evidence=f"without the optimizer {name} the answers are nearer", after=after)
