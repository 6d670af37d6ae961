"""Evidence that no run made: a scene between two files, or a reference of plain functions, and gaps by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from onnxproof.diagnosis.locate.scene import Scene
from onnxproof.options import Policy
from onnxproof.reference.subject import Subject
from onnxproof.results import Gap, NoiseKind, Status, Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock
from onnxproof.verification.budget import Budget
from onnxproof.verification.evidence import Evidence, Request


def gap_of(case: str, *, ratio: float = 1e6, **changes: Any) -> Gap:
    """A gap that is so many times the noise, and beyond every tolerance where it is beyond noise."""
    gap = Gap(
        case=case,
        group="ordinary",
        backend="ort",
        output="y",
        status=Status.COMPARED,
        compared=24,
        scale=1.0,
        noise=1e-7,
        noise_kind=NoiseKind.GRAPH,
        noise_ratio=ratio,
        worst_ratio=ratio,
        allowance=ratio,
        confirmed=True,
    )
    return replace(gap, **changes)


def evidence_on(
    scene: Scene,
    gaps: Sequence[Gap] = (),
    *,
    budget_s: float = 60.0,
    seconds: float | None = None,
    hung: bool = False,
    **proof: Any,
) -> Evidence:
    """The evidence of a fault on the scene's case; `seconds` is what is really left of the budget."""
    path = scene.path.with_name("right.onnx")
    clock = Clock()
    facts: dict[str, Any] = {"verdict": Verdict.DIVERGED, "witness": scene.case}
    return Evidence(
        request=Request(
            subject=Subject(onnx=path, kwargs=dict(scene.case.inputs), name="right"),
            path=scene.path,
            budget_s=budget_s,
        ),
        proof=Proof(
            subject="right.onnx",
            candidate="wrong.onnx",
            backends=("ort",),
            gaps=tuple(gaps),
            signature=scene.signature,
            policy=Policy(),
            **(facts | proof),
        ),
        reference=scene.reference,
        file=scene.file,
        signature=scene.signature,
        clock=clock,
        budget=Budget(budget_s if seconds is None else seconds, clock, explained=True),
        noted=None,
        differing=(),
        agreeing=(),
        space=None,
        hung=hung,
    )
