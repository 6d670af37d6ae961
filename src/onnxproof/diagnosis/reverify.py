"""The verdict on a fix: the mended file, or the same file with optimizers off, is verified from scratch."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.onnxmodel import large_models
from onnxproof.results import Verdict
from onnxproof.system import temporary
from onnxproof.verification.evidence import Evidence
from onnxproof.verification.run import run

MOST_S = 12.0
"""For the verdict on one fix, if that much of the budget is left. Not measured."""
_MOST_FIRST = 4
"""Cases that differ which a fix is tried on before all others. Not measured."""
_LEAST_PASSES = 8
"""Forward passes that a verdict on a mended file needs at least."""

Reverify = Callable[[onnx.ModelProto | None, tuple[str, ...]], Verdict | None]


def within_budget_of(evidence: Evidence) -> Reverify:
    """Verify fixes within what is left of the evidence's budget; None where that is not enough for a verdict.

    The cases that differ come first: a fix that leaves one of them wrong costs no other.
    """
    witness = evidence.proof.witness
    differing = evidence.differing if witness is None else (witness, *evidence.differing)
    first = {case.name: case for case in differing[:_MOST_FIRST]}

    def reverify(model: onnx.ModelProto | None, optimizers: tuple[str, ...]) -> Verdict | None:
        left = min(MOST_S, evidence.budget.end.left)
        if not left or left < _LEAST_PASSES * evidence.budget.pass_s:
            return None
        if model is None and not optimizers:
            return None
        with temporary.Folder() as folder:
            path = evidence.request.path
            if model is not None:
                path = Path(folder) / "mended.onnx"
                large_models.save(model, path)
            request = replace(
                evidence.request,
                path=path,
                budget_s=left,
                only=(),
                first=tuple(first.values()),
                explained=False,
                disabled_optimizers=optimizers,
                progress=None,
            )
            try:
                return run(request).proof.verdict
            except OnnxproofError:
                return Verdict.ERROR

    return reverify
