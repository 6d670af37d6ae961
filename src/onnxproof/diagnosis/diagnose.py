"""From a bad verdict to where and why, and to a remedy that was tried."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from onnxproof.diagnosis import causes
from onnxproof.diagnosis.causes import provider_fallback
from onnxproof.diagnosis.counterfactuals.quantized_study import waterfall
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Workbench
from onnxproof.diagnosis.locate import Scene, locate
from onnxproof.diagnosis.locate.match import relative
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.measure import is_float
from onnxproof.results import Case, Domain, Finding, Gap, Location, Verdict, judging
from onnxproof.system import temporary
from onnxproof.system.allocator import give_back
from onnxproof.system.deadline import Deadline
from onnxproof.verification.budget import not_reached

if TYPE_CHECKING:
    from onnxproof.results.proof import Proof
    from onnxproof.verification.run import Run

_FIX_BUDGET_S = 12.0
"""For the verdict on one remedy, if that much of the budget is left."""
_LEAST_PASSES = 6
"""Forward passes of the reference that locating a fault needs: an answer and its truth, one that records all values, and a few values again."""
_VERIFY_PASSES = 8
"""Those that a verdict on a mended file needs at least."""

_STEADY, _OTHERS = 1e-3, 4
"""The relative noise of a case up to which its answers are steady, and how many others are looked at for one."""


def scene_of(run: "Run", case: Case, backend: str, gap: Gap | None = None) -> Scene:
    """Everything that locating needs, for one case and, where there is one, the gap that is to be explained."""
    reference = run.oracle.run(case.inputs)
    give_back()
    truth = run.oracle.truth(case.inputs) or reference
    steady = [
        is_float(r) or np.array_equal(r, t) or (gap is not None and gap.output == o.name)
        for r, t, o in zip(reference, truth, run.signature.outputs, strict=True)
    ]
    noise = max(
        (
            relative(r, t)
            for r, t, counts in zip(reference, truth, steady, strict=True)
            if counts and np.isfinite(relative(r, t))
        ),
        default=0.0,
    )
    return Scene(
        oracle=run.oracle,
        path=run.path,
        file=run.file,
        signature=run.signature,
        case=case,
        backend=backend,
        truth=truth,
        noise=max(noise, 1e-7),
        dtypes=[answer.dtype for answer in reference],
        steady=tuple(steady),
        gap=gap,
        deadline=run.budget.end,
    )


def diagnose(proof: "Proof", run: "Run") -> "Proof":
    """Locate the fault on its best witness, then try the causes; where there are only notes, on the first of them."""
    case = proof.witness or run.noted
    if case is None:
        return replace(proof, causes=tuple(provider_fallback.refusal_causes(proof.findings)))
    if run.fleet.hung:
        return _unexplained(
            proof,
            "the file gave no answer within the time limit, and nothing more was asked of it",
            "the verdict stands",
        )
    if not run.budget.affords(_LEAST_PASSES):
        return _unexplained(
            proof,
            f"the budget of {run.budget_s:g} s ended before the node and the cause were looked for",
            "give more time with `--budget`",
        )
    scene = _steadiest(proof, run, case)
    where = locate(scene)
    if where is None:
        return proof
    proof = replace(proof, location=where, scene=scene, profile=scene.profile)
    try:
        bench = workbench(scene, where, proof, run)
        report = causes.explain(bench, lambda model, options: _verify(run, model, options))
    except (OnnxproofError, ValueError, KeyError, TypeError, IndexError) as why:
        return _unexplained(proof, f"the cause could not be tried: {type(why).__name__}: {why}")
    if report.untried:
        late = not_reached(f"{len(report.untried)} of {len(causes.codes())} causes were not tried")
        proof = replace(proof, findings=(*proof.findings, late))
    return replace(
        proof,
        causes=report.causes,
        tried=report.skipped,
        untried=report.untried,
        waterfall=waterfall(bench),
    )


def _unexplained(proof: "Proof", what: str, help: str = "") -> "Proof":
    return replace(
        proof, findings=(*proof.findings, Finding(code="unexplained", what=what, help=help))
    )


def _steadiest(proof: "Proof", run: "Run", case: Case) -> Scene:
    """The witness, or another case that differs where rounding decides an answer of the witness: next to a flipped choice no smaller fault can be seen."""
    scene = _scene(proof, run, case)
    for other in run.bad[:_OTHERS] if scene.noise > _STEADY and proof.witness is not None else ():
        if not run.budget.affords(_LEAST_PASSES):
            break
        calmer = _scene(proof, run, other)
        scene = calmer if calmer.noise < scene.noise else scene
        if scene.noise <= _STEADY:
            break
    return scene


def _scene(proof: "Proof", run: "Run", case: Case) -> Scene:
    counted = proof.witness is not None
    gap = max(
        (gap for gap in proof.gaps if gap.case == case.name),
        key=lambda g: (
            (g.domain is None) == counted,
            g.domain is Domain.TIES,
            *judging.severity(g, proof.policy),
        ),
    )
    return scene_of(run, case, gap.backend, gap)


def profiled(proof: "Proof", run: "Run") -> "Proof":
    """The proof with the noise ratio along the graph, on the example: the same case in every run, so that two runs can be compared."""
    from onnxproof.diagnosis.locate.profile import measure

    if not run.budget.affords(_LEAST_PASSES):
        return replace(
            proof,
            findings=(*proof.findings, not_reached("the noise along the graph was not measured")),
        )
    example = Case(
        name="example", group="ordinary", about="the example inputs", inputs=run.oracle.example()
    )
    try:
        return replace(proof, profile=measure(scene_of(run, example, run.backends[0])))
    except (
        OnnxproofError,
        ValueError,
        MemoryError,
    ):  # a report without this chart is still a report
        return proof


def workbench(
    scene: Scene, where: Location, proof: "Proof", run: "Run", deadline: Deadline | None = None
) -> Workbench:
    """The bench for this scene, with what is known of all cases; trials end with the budget, or with a deadline of their own."""
    bad: dict[str, bool] = {}
    telling: dict[str, bool] = {}
    for gap in proof.gaps:
        if gap.domain is None:
            beyond = judging.judge_gap(gap, proof.policy) in (Verdict.DRIFT, Verdict.DIVERGED)
            bad[gap.case] = bad.get(gap.case, False) or beyond
            telling[gap.case] = gap.group in ("ordinary", "shapes") and not gap.case.startswith(
                "scale-"
            )
    return Workbench(
        scene,
        where,
        cases=ComparedCases(
            beyond_noise=bad,
            sizes=run.sizes,
            ordinary=telling,
            others=[case for case in run.bad if case.name != scene.case.name],
        ),
        policy=proof.policy,
        subject=run.subject,
        calibration=run.calibration,
        findings=proof.findings,
        deadline=deadline or run.budget.end,
    )


def _verify(run: "Run", model: onnx.ModelProto | None, options: tuple[str, ...]) -> Verdict | None:
    """The verdict on a remedy, from scratch and within what is left of the budget; None where that is not enough for one."""
    from onnxproof.verification.run import Run as Again

    left = min(_FIX_BUDGET_S, run.budget.end.left)
    if left < _VERIFY_PASSES * run.budget.pass_s or not left:
        return None
    with temporary.Folder() as folder:
        path = run.path
        if model is not None:
            path = Path(folder) / "mended.onnx"
            onnx.save(model, path)
        elif not options:
            return None
        try:
            return (
                Again(
                    run.subject,
                    path,
                    run.backends,
                    run.policy,
                    budget_s=left,
                    seed=run.seed,
                    disabled_optimizers=options,
                )
                .prove()
                .verdict
            )
        except OnnxproofError:
            return Verdict.ERROR
