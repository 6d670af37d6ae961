"""From a bad verdict to where and why."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from onnxproof import judge
from onnxproof.locate import Scene, locate
from onnxproof.locate._match import relative
from onnxproof.types import Case

if TYPE_CHECKING:
    from onnxproof.proof import Proof
    from onnxproof.prove import Run


def scene_of(run: "Run", case: Case, backend: str) -> Scene:
    """Everything that locating needs, for one case."""
    reference = run.oracle.run(case.inputs)
    truth = run.oracle.truth(case.inputs) or reference
    noise = max((relative(r, t) for r, t in zip(reference, truth, strict=True) if np.isfinite(relative(r, t))), default=0.0)
    return Scene(oracle=run.oracle, path=run.path, file=run.file, signature=run.signature, case=case, backend=backend, truth=truth, reference=reference,
                 noise=max(noise, 1e-7))


def diagnose(proof: "Proof", run: "Run") -> "Proof":
    """Locate the fault on its best witness; where there are only notes, on the first of them."""
    case = proof.witness or run.noted
    if case is None:
        return proof
    gaps = [gap for gap in proof.gaps if gap.case == case.name]
    gap = max(gaps, key=lambda g: (g.domain is None, *judge.severity(g, proof.policy)))
    scene = replace(scene_of(run, case, gap.backend), gap=gap)
    return replace(proof, location=locate(scene))
