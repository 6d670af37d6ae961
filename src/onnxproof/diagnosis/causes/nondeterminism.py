"""The file answers otherwise each time it is asked.

What it is: the graph draws random numbers, or the runtime adds up in an order that changes from run to run.

Why it happens: a sampling step (`torch.randn_like`, `bernoulli`, a variational layer) is exported as it stands, with
its own seed; a parallel reduction has no fixed order.

How to see it: two runs on the same input differ by as much as the file differs from the module.

How to fix it: pass the random numbers in as an input, or export the mean; for a runtime, one thread.

Example: a variational decoder whose `randn_like` became a `RandomNormalLike`.
"""

from onnxproof.diagnosis.counterfactuals.workbench import Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.relative_error import relative_error
from onnxproof.runtimes.session.execution import Candidate, Clock

TITLE = "the file answers otherwise each time"
PRICE = 2
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


def test(bench: Workbench) -> Tried | str:
    """Ask the candidate the same twice, in one session: a new one may draw the same numbers again."""
    scene = bench.scene
    try:
        candidate = Candidate(scene.backend, scene.path, scene.signature, Clock())
        first, again = candidate.run(scene.case.inputs), candidate.run(scene.case.inputs)
        candidate.close()
    except OnnxproofError:
        return "the candidate can't be asked a second time"
    apart = max(
        (relative_error(b, a) for a, b in zip(first, again, strict=True) if a is not None),
        default=0.0,
    )
    if not apart > bench.limit:
        return "two runs give the same"
    random = [
        node.name or node.output[0] for node in bench.model.graph.node if node.op_type in _RANDOM
    ]
    who = (
        f"{', '.join(random[:3])} draw{'s' * (len(random) == 1)} random numbers"
        if random
        else "no node draws random numbers: it is the runtime"
    )
    return Tried(
        proven=apart > bench.before / 4,
        after=0.0,
        evidence=f"two runs on the same input differ by {apart:.2g} of the outputs' size, the file and the module by {bench.before:.2g}; {who}",
    )
