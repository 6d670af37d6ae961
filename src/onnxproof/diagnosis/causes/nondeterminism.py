"""The file answers otherwise each time it is asked.

What it is: the graph draws random numbers, or the runtime adds up in an order that changes from run to run.

Why it happens: a sampling step (`torch.randn_like`, `bernoulli`, a variational layer) is exported as it stands, with
its own seed; a parallel reduction has no fixed order.

How to see it: two runs on the same input differ by as much as the file differs from the module.

How to fix it: pass the random numbers in as an input, or export the mean; for a runtime, one thread.

Example: a variational decoder whose `randn_like` became a `RandomNormalLike`.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench, node_name
from onnxproof.diagnosis.judge import Counterfactual
from onnxproof.diagnosis.trial_cases import TrialCase
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "the file answers otherwise each time"
PRICE = 2
_EXPLAINING_SHARE = 4
"""Two runs must differ by at least this fraction of what the file and the module differ. Not measured."""
_RANDOM = frozenset(
    {
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Multinomial",
        "Bernoulli",
    }
)


def test(workbench: Workbench) -> Tried | str:
    """Run the candidate twice on the same input, in one session: a new one may draw the same numbers again."""
    difference = _difference_of_two_runs(workbench, workbench.witness)
    if difference is None:
        return "the candidate can't be asked a second time"
    if not difference > workbench.limit:
        return "two runs give the same"
    evidence = f"two runs on the same input differ by {difference:.2g} of the outputs' size, the file and the module by {workbench.before:.2g}; {_random_nodes(workbench)}"

    def error(case: TrialCase) -> float | None:
        """What two runs of the file leave unexplained: nothing where they differ as much as the file and the module do."""
        again = _difference_of_two_runs(workbench, case)
        if again is None:
            return None
        return case.before if again < case.before / _EXPLAINING_SHARE else 0.0

    tried = workbench.try_counterfactual(
        Counterfactual(error=error, in_reference=False), f"{evidence}; it is so"
    )
    return tried or Tried(evidence=evidence)


def _difference_of_two_runs(workbench: Workbench, case: TrialCase) -> float | None:
    """The largest relative distance of an output between two runs; None where the candidate does not run twice."""
    scene = workbench.scene
    try:
        candidate = Candidate(scene.backend, scene.path, scene.signature, Clock())
        first = candidate.run(case.inputs)
        second = candidate.run(case.inputs)
        candidate.close()
    except OnnxproofError:
        return None
    pairs = zip(first, second, strict=True)
    return max(
        (relative_error(again, once) for once, again in pairs if once is not None), default=0.0
    )


def _random_nodes(workbench: Workbench) -> str:
    """Which nodes draw random numbers, in words."""
    nodes = [node for node in workbench.model.graph.node if node.op_type in _RANDOM]
    if not nodes:
        return "no node draws random numbers: it is the runtime"
    names = ", ".join(node_name(node) for node in nodes[:3])
    if len(nodes) == 1:
        return f"{names} draws random numbers"
    return f"{names} draw random numbers"
