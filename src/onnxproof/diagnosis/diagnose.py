"""From the evidence of a fault to the node, the cause, and a fix that was tried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from onnxproof.diagnosis import causes
from onnxproof.diagnosis.causes import Verify, provider_fallback
from onnxproof.diagnosis.counterfactuals.quantized_study import waterfall
from onnxproof.diagnosis.counterfactuals.workbench import ComparedCases, Means, Workbench
from onnxproof.diagnosis.locate import Located, Scene, locate
from onnxproof.diagnosis.locate.scene import rounding_distances
from onnxproof.diagnosis.mended_nodes import name_first
from onnxproof.errors import OnnxproofError
from onnxproof.numerics.measure import is_float
from onnxproof.options import Policy
from onnxproof.results import (
    Case,
    Cause,
    Domain,
    Finding,
    Gap,
    Location,
    Profile,
    Rollout,
    Share,
    Verdict,
    judging,
)
from onnxproof.results.gaps import CAUSE_FAILED
from onnxproof.results.proof import Proof
from onnxproof.system.allocator import release_free_memory
from onnxproof.system.deadline import Deadline
from onnxproof.verification.budget import not_reached
from onnxproof.verification.evidence import Evidence

_LEAST_PASSES = 6
"""Forward passes of the reference that locating a fault needs: an answer and its truth, one that records all values, and a few values again."""
_STEADY_NOISE = 1e-3
"""The relative noise of a case up to which its answers are steady. Not measured."""
_MOST_STEADIER = 4
"""Other cases that are looked at for a steadier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Where and why; what could not be found out is a finding."""

    location: Location | None = None
    causes: tuple[Cause, ...] = ()
    ruled_out: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    waterfall: tuple[Share, ...] = ()
    profile: Profile | None = None
    findings: tuple[Finding, ...] = ()
    scene: Scene | None = None
    located: Located | None = None
    """What was learned on the way to the location: the causes and a fix go on from it."""

    def added_to(self, proof: Proof) -> Proof:
        """The proof with this diagnosis."""
        return replace(
            proof,
            location=self.location,
            causes=self.causes,
            rollouts=self._explained(proof.rollouts),
            tried=self.ruled_out,
            untried=self.untried,
            waterfall=self.waterfall,
            profile=self.profile,
            findings=(*proof.findings, *self.findings),
            scene=self.scene,
            located=self.located,
        )

    def _explained(self, rollouts: tuple[Rollout, ...]) -> tuple[Rollout, ...]:
        """Where other positions were shown to be the cause, that is what is wrong with the bad rollouts."""
        if not self.causes or self.causes[0].code != "position" or not self.causes[0].proven:
            return rollouts
        return tuple(
            rollout if rollout.first_bad_step is None else replace(rollout, what="position")
            for rollout in rollouts
        )


def diagnose(
    evidence: Evidence, policy: Policy, reverify: Verify, means: Means | None = None
) -> Diagnosis:
    """Locate the fault on its best witness, then try the causes; where there are only notes, on the first of them."""
    proof = evidence.proof
    case = proof.witness or evidence.noted
    if case is None:
        return Diagnosis(causes=tuple(provider_fallback.refusal_causes(proof.findings)))
    if evidence.hung:
        what = "the file gave no answer within the time limit, and nothing more was asked of it"
        return Diagnosis(findings=(_unexplained(what, "the verdict stands"),))
    if not evidence.budget.affords(_LEAST_PASSES):
        budget_s = evidence.request.budget_s
        what = f"the budget of {budget_s:g} s ended before the node and the cause were looked for"
        return Diagnosis(findings=(_unexplained(what, "give more time with `--budget`"),))
    scene = _steadiest_scene(evidence, policy, case)
    located = locate(scene)
    diagnosis = Diagnosis(
        location=located.location, located=located, scene=scene, profile=located.profile
    )
    return _explain(evidence, policy, diagnosis, reverify, means or Means())


def _explain(
    evidence: Evidence, policy: Policy, diagnosis: Diagnosis, reverify: Verify, means: Means
) -> Diagnosis:
    """Try the causes at the place that was located."""
    scene, located = diagnosis.scene, diagnosis.located
    assert scene is not None and located is not None
    try:
        workbench = open_workbench(evidence, policy, scene, located, means=means)
        report = causes.explain(workbench, reverify)
        shares = waterfall(workbench)
    except (OnnxproofError, ValueError, KeyError, TypeError, IndexError) as why:
        what = f"the cause could not be tried: {type(why).__name__}: {why}"
        return replace(diagnosis, findings=(_unexplained(what),))
    return replace(
        diagnosis,
        location=_with_mended_first(workbench, located.location, report),
        causes=report.causes,
        ruled_out=report.skipped,
        untried=report.untried,
        waterfall=shares,
        findings=tuple(_about_untried(report)),
    )


def _with_mended_first(workbench: Workbench, location: Location, report: causes.Report) -> Location:
    """The location, led by what a proven cause mends: that was run on many cases, the search on one."""
    if not report.mended:
        return location
    return name_first(location, workbench.scene.file, report.mended, report.causes[0].code)


def _about_untried(report: causes.Report) -> Iterator[Finding]:
    """What is not known of the causes: a try that failed is told apart from one for which no time was left."""
    late = len(report.untried) - len(report.failed)
    if late:
        yield not_reached(f"{late} of {len(causes.codes())} causes were not tried")
    if report.failed:
        yield Finding(
            code=CAUSE_FAILED,
            what=f"not known, since trying it failed: {'; '.join(report.failed)}",
            help="the verdict and the place stand; what this cause would have said is not known",
        )


def _unexplained(what: str, help: str = "") -> Finding:
    return Finding(code="unexplained", what=what, help=help)


def open_scene(evidence: Evidence, case: Case, backend: str, gap: Gap | None = None) -> Scene:
    """What locating works on: one case, and where there is one the gap that is to be explained."""
    outputs = evidence.signature.outputs
    answers = evidence.reference.run(case.inputs)
    release_free_memory()
    truth = evidence.reference.truth(case.inputs) or answers
    explained = "" if gap is None else gap.output
    steady = [
        is_float(answer) or np.array_equal(answer, true) or output.name == explained
        for answer, true, output in zip(answers, truth, outputs, strict=True)
    ]
    distances = rounding_distances(evidence.reference, case.inputs, answers, truth)
    counting = [distance for distance, counts in zip(distances, steady, strict=True) if counts]
    noise = max((distance for distance in counting if np.isfinite(distance)), default=0.0)
    return Scene(
        reference=evidence.reference,
        path=evidence.request.path,
        file=evidence.file,
        signature=evidence.signature,
        case=case,
        backend=backend,
        truth=truth,
        noise=max(noise, 1e-7),
        dtypes=[answer.dtype for answer in answers],
        steady=tuple(steady),
        gap=gap,
        policy=evidence.request.policy,
        deadline=evidence.budget.end,
    )


def _steadiest_scene(evidence: Evidence, policy: Policy, case: Case) -> Scene:
    """The witness, or another case that differs where rounding decides an answer of the witness.

    Next to a choice that rounding flipped, no smaller fault can be seen.
    """
    scene = _worst_scene(evidence, policy, case)
    if scene.noise <= _STEADY_NOISE or evidence.proof.witness is None:
        return scene
    plain = [other for other in evidence.differing if other.domain is None]
    for other in plain[:_MOST_STEADIER]:
        if not evidence.budget.affords(_LEAST_PASSES):
            break
        steadier = _worst_scene(evidence, policy, other)
        if steadier.noise < scene.noise:
            scene = steadier
        if scene.noise <= _STEADY_NOISE:
            break
    return scene


def _worst_scene(evidence: Evidence, policy: Policy, case: Case) -> Scene:
    """The case with its worst gap: one that counts where there is a witness, else a note's."""
    counted = evidence.proof.witness is not None

    def severity(gap: Gap) -> tuple[Any, ...]:
        fits = (gap.domain is None) == counted
        return fits, gap.domain is Domain.TIES, *judging.severity(gap, policy)

    worst = max((gap for gap in evidence.proof.gaps if gap.case == case.name), key=severity)
    return open_scene(evidence, case, worst.backend, worst)


def open_workbench(
    evidence: Evidence,
    policy: Policy,
    scene: Scene,
    located: Located,
    *,
    means: Means,
    deadline: Deadline | None = None,
) -> Workbench:
    """The workbench for this scene, with what is known of all cases; trials end with the budget, or with a deadline of their own."""
    differs: dict[str, bool] = {}
    ordinary: dict[str, bool] = {}
    for gap in evidence.proof.gaps:
        if gap.domain is None:
            verdict = judging.judge_gap(gap, policy)
            beyond_noise = verdict in (Verdict.DRIFT, Verdict.DIVERGED)
            differs[gap.case] = differs.get(gap.case, False) or beyond_noise
            usual = gap.group in ("ordinary", "shapes")
            ordinary[gap.case] = usual and not gap.case.startswith("scale-")
    return Workbench(
        scene,
        located,
        cases=ComparedCases(
            beyond_noise=differs,
            sizes=evidence.proof.sizes,
            ordinary=ordinary,
            others=_of_same_domain(evidence.differing, scene.case),
            agreeing=evidence.agreeing,
            space=evidence.space,
            pass_s=evidence.budget.pass_s,
        ),
        policy=policy,
        subject=evidence.request.subject,
        means=means,
        findings=evidence.proof.findings,
        deadline=deadline or evidence.budget.end,
    )


def _of_same_domain(cases: Sequence[Case], witness: Case) -> list[Case]:
    """The other cases that differ, those of the witness's own domain first."""
    others = [case for case in cases if case.name != witness.name]
    return sorted(others, key=lambda case: case.domain is not witness.domain)


def noise_profile(evidence: Evidence) -> tuple[Profile | None, tuple[Finding, ...]]:
    """The noise ratio along the graph, on the example: the same case in every run, so that two runs can be compared."""
    from onnxproof.diagnosis.locate.profile import measure

    if not evidence.budget.affords(_LEAST_PASSES):
        return None, (not_reached("the noise along the graph was not measured"),)
    inputs = evidence.reference.example()
    example = Case(name="example", group="ordinary", about="the example inputs", inputs=inputs)
    try:
        return measure(open_scene(evidence, example, evidence.request.backends[0])), ()
    except (OnnxproofError, ValueError, MemoryError):  # a report without this chart is still one
        return None, ()
