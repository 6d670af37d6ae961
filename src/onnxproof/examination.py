"""A verification with its diagnosis: what `verify`, `explain` and `mend` share."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxproof.errors import Stopped
from onnxproof.options import VerifyOptions
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding, Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes import use_serving
from onnxproof.verification.evidence import Evidence, Request
from onnxproof.verification.progress import Report, explaining
from onnxproof.verification.run import run

if TYPE_CHECKING:
    from onnxproof.diagnosis.diagnose import Diagnosis
    from onnxproof.diagnosis.remedy import Mended

_BAD = (Verdict.DRIFT, Verdict.DIVERGED)


def verify_subject(
    subject: Subject, path: Path, options: VerifyOptions, progress: Report | None
) -> Proof:
    """Verification, then where it is needed a diagnosis."""
    with use_serving(options.serving):
        evidence = _measured(_request(subject, path, options, progress))
        proof = evidence.proof
        if options.explain and _needs_diagnosis(evidence, proof):
            proof = _diagnosed(evidence, proof, None).added_to(proof)
        if options.explain:
            proof = _with_costs(evidence, proof)
        if options.evaluate is not None:
            from onnxproof.quantization import verified_metric

            evidence.announce("the task's metric")
            told = verified_metric.findings(evidence, options.evaluate)
            proof = replace(proof, findings=(*proof.findings, *told))
        if options.profile and proof.profile is None and proof.gaps:
            proof = _profiled(evidence, proof)
        return proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """A verification with its diagnosis: what `mend` goes on from."""

    proof: Proof
    evidence: Evidence
    diagnosis: "Diagnosis"
    options: VerifyOptions
    calibration: Any = None
    regained: "Mended | None" = None
    """Of a sound quantized file whose layers run in float: the file with which they run as integers."""

    def mend(self, output: str | Path | None) -> "Mended":
        """Apply the fixes, verify, and write the mended file if it is faithful or better."""
        from onnxproof.diagnosis import remedy

        mended = self.regained
        if mended is None:
            with use_serving(self.options.serving):
                mended = remedy.mend(self.evidence, self.diagnosis, _means(self.calibration))
        if output is None or not mended.worth_writing:
            return mended
        return mended.written_to(Path(output))


def examine(
    subject: Subject,
    path: Path,
    options: VerifyOptions,
    progress: Report | None,
    calibration: Any = None,
) -> Examination:
    """Verify and diagnose, with everything at hand that `mend` needs."""
    with use_serving(options.serving):
        return _examine(_request(subject, path, options, progress), options, calibration)


def _examine(request: Request, options: VerifyOptions, calibration: Any) -> Examination:
    from onnxproof.diagnosis.diagnose import Diagnosis

    subject = request.subject
    evidence = _measured(request)
    if calibration is not None and evidence.file.quantized:
        from onnxproof.quantization.calibration import data_trust

        findings = data_trust.examine_calibration_data(subject, calibration)
        findings = data_trust.weigh_findings(findings, evidence.proof, subject)
        evidence = replace(evidence, proof=data_trust.judge_with_doubts(evidence.proof, findings))
    proof, diagnosis, regained = evidence.proof, Diagnosis(), None
    if _needs_diagnosis(evidence, proof):
        diagnosis = _diagnosed(evidence, proof, calibration)
        proof = diagnosis.added_to(proof)
    elif evidence.file.quantized and proof.verdict is Verdict.FAITHFUL:
        from onnxproof.diagnosis import integer_kernels

        regained = integer_kernels.regain(evidence)
        if regained is not None:
            proof = replace(proof, causes=regained.causes)
    return Examination(
        proof=_with_costs(evidence, proof),
        evidence=evidence,
        diagnosis=diagnosis,
        options=options,
        calibration=calibration,
        regained=regained,
    )


def _request(
    subject: Subject, path: Path, options: VerifyOptions, progress: Report | None
) -> Request:
    return Request(
        subject=subject,
        path=path,
        backends=options.backends,
        policy=options.policy,
        budget_s=options.budget_s,
        seed=options.seed,
        only=options.only,
        explained=options.explain,
        target=options.target,
        progress=progress,
        loop=options.loop,
        steps=options.steps,
    )


def _measured(request: Request) -> Evidence:
    """Verification; of a quantized file also whether its parameters fit the reference's weights, and whether its layers run as integers."""
    evidence = run(request)
    if not evidence.file.quantized:
        return evidence
    from onnxproof.diagnosis.locate import parameters
    from onnxproof.quantization import kernel_fallback

    return kernel_fallback.add_finding(parameters.doubt(evidence))


def _needs_diagnosis(evidence: Evidence, proof: Proof) -> bool:
    return proof.verdict in _BAD or evidence.noted is not None


def _diagnosed(evidence: Evidence, proof: Proof, calibration: Any) -> "Diagnosis":
    """Where and why; a failure to explain is said, and takes nothing from the verdict."""
    from onnxproof.diagnosis.diagnose import Diagnosis, diagnose
    from onnxproof.diagnosis.reverify import within_budget_of

    evidence.announce("looking for the node and the cause", explaining(proof))
    try:
        structural = _structural_diagnosis(evidence, calibration)
        if structural is not None:
            return structural
        policy, reverify = evidence.request.policy, within_budget_of(evidence)
        return diagnose(evidence, policy, reverify, _means(calibration))
    except KeyboardInterrupt as why:
        what = "stopped by the user while the node and the cause were looked for"
        stopped = Finding(code="unexplained", what=what, help="the verdict stands")
        raise Stopped(replace(proof, findings=(*proof.findings, stopped))) from why
    except Exception as why:
        what = f"the fault could not be located: {type(why).__name__}: {why}"
        help = "please report it, with the replay line"
        failed = Finding(code="unexplained", what=what, help=help)
        return Diagnosis(findings=(failed,))


def _structural_diagnosis(evidence: Evidence, calibration: Any) -> "Diagnosis | None":
    """A file with weights of a few bits that fit the module's: with its own weights in the module, what is wrong is found as in any other file."""
    if not _keeps_blocks(evidence):
        return None
    from onnxproof.diagnosis.diagnose import diagnose
    from onnxproof.diagnosis.locate import parameters
    from onnxproof.diagnosis.reverify import within_budget_of
    from onnxproof.system import temporary
    from onnxproof.verification.shared_weights import request_with_shared_weights

    if parameters.has_wrong_weights(evidence):
        return None
    with temporary.Folder() as folder:
        request = request_with_shared_weights(evidence, Path(folder))
        if request is None:
            return None
        shared = run(request)
        if shared.proof.verdict not in _BAD:
            return None
        policy, reverify = request.policy, within_budget_of(shared)
        diagnosis = diagnose(shared, policy, reverify, _means(calibration))
    what = "with the file's own weights in the module the two still differ: the weights are rounded rightly, and something else is wrong"
    return replace(diagnosis, findings=(Finding(code="structure", what=what), *diagnosis.findings))


def _with_costs(evidence: Evidence, proof: Proof) -> Proof:
    """Of a file with weights in blocks: what each matrix costs."""
    if not _keeps_blocks(evidence):
        return proof
    from onnxproof.quantization.blockwise import verified_costs

    evidence.announce("what each matrix costs")
    proof = verified_costs.add_costs(evidence, proof)
    if proof.location is None:
        return proof
    from onnxproof.diagnosis.locate.quantized import name_costly_matrices

    return name_costly_matrices(proof, evidence.file.model)


def _keeps_blocks(evidence: Evidence) -> bool:
    from onnxproof.verification.block_reading import keeps_blocks

    return keeps_blocks(evidence.file.model.graph)


def _means(calibration: Any) -> Any:
    """What a diagnosis may use beside the evidence: it sits below the exporter, and is handed it."""
    from onnxproof.diagnosis.counterfactuals.workbench import Means
    from onnxproof.exporter.export import write

    return Means(export_float=write, calibration=calibration)


def _profiled(evidence: Evidence, proof: Proof) -> Proof:
    from onnxproof.diagnosis.diagnose import noise_profile

    evidence.announce("nodes")
    profile, findings = noise_profile(evidence)
    return replace(proof, profile=profile, findings=(*proof.findings, *findings))
