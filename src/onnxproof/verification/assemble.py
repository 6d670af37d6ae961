"""The proof from what was measured: judged, with the line that replays its worst case."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxproof.onnxmodel import onnx_file
from onnxproof.onnxmodel.onnx_file import OnnxFile
from onnxproof.options import Policy
from onnxproof.reference.protocol import Reference
from onnxproof.reference.subject import Subject
from onnxproof.results import (
    Coverage,
    CrossCheck,
    Finding,
    Gap,
    Rollout,
    Signature,
    Verdict,
    judging,
)
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock
from onnxproof.system.environment import environment
from onnxproof.verification import void_outputs
from onnxproof.verification.case_runner import Trial
from onnxproof.verification.evidence import Request
from onnxproof.verification.observations import Observations
from onnxproof.verification.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that a verification has when its cases are done."""

    request: Request
    observed: Observations
    findings: tuple[Finding, ...]
    reference: Reference
    file: OnnxFile
    signature: Signature
    coverage: Coverage
    consensus: CrossCheck | None
    rollouts: tuple[Rollout, ...]
    complete: bool
    clock: Clock
    recording: Recording | None = None


def mark_void(
    observed: Observations, trial: Trial, findings: Sequence[Finding], policy: Policy
) -> list[Finding]:
    """Mark what proves nothing: a random or constant reference, noise that lets anything pass."""
    doubts = trial.doubts
    assessed = void_outputs.assess(
        observed.gaps,
        policy,
        plain=trial.plain,
        random=doubts.random,
        constant=trial.answers.constant,
    )
    observed.gaps = list(assessed.gaps)
    kept = void_outputs.discount_random(list(findings), doubts.random)
    sets = () if trial.sets is None else trial.sets.findings()
    return [*kept, *doubts.findings(), *assessed.findings, *sets]


def assemble_proof(measured: Measured, error: str) -> Proof:
    """Judge what was measured; after an error there is no verdict on it."""
    request, observed = measured.request, measured.observed
    verdict = judging.judge(
        observed.gaps, request.policy, notes=observed.notes, findings=measured.findings
    )
    if error:
        verdict = Verdict.ERROR
    state = [_state_finding(what) for what in measured.reference.findings()]
    proof = Proof(
        verdict=verdict,
        subject=request.subject.name,
        candidate=str(request.path),
        backends=request.backends,
        gaps=tuple(observed.gaps),
        coverage=measured.coverage,
        sizes=dict(observed.sizes),
        notes=tuple(observed.first_notes()),
        findings=(*measured.findings, *state),
        signature=measured.signature,
        policy=request.policy,
        dropped=tuple(observed.dropped),
        error=error,
        seed=request.seed,
        budget_s=request.budget_s,
        complete=measured.complete,
        environment=environment() | {"opset": str(measured.file.opset)},
        hashes={"candidate": onnx_file.fingerprint(request.path)},
        seconds={**measured.clock.seconds, "total": measured.clock.elapsed},
        passes=dict(measured.clock.passes),
        group_seconds=observed.seconds,
        cross=measured.consensus,
        rollouts=measured.rollouts,
        witness=observed.witness,
        recording=measured.recording,
        origin=request.subject.origin,
        chosen=request.only,
        half=_half_of_the_file(measured),
    )
    return replace(proof, replay=_replay_line(request, proof))


def _half_of_the_file(measured: Measured) -> str:
    """The half precision that the noise is taken from: the file is of one, and the reference is not."""
    half = measured.file.half
    floats = [port.dtype for port in measured.signature.outputs if "float" in port.dtype]
    if half is None or all(dtype == half for dtype in floats):
        return ""
    return half


def _state_finding(what: str) -> Finding:
    return Finding(
        code="state",
        what=f"the module keeps state between calls: a forward pass changes {what}",
        help="an exported graph keeps none; pass the state in and out",
    )


def _replay_line(request: Request, proof: Proof) -> str:
    """The command, or the call, that runs the worst case again."""
    worst = proof.worst
    if worst is None:
        return ""
    path, seed = request.path, request.seed
    if not request.subject.origin:
        return (
            f"onnxproof.verify(model, {str(path)!r}, example_inputs, "
            f"backends=({worst.backend!r},), seed={seed}, only=({worst.case!r},))"
        )
    command = "diff" if request.subject.onnx else "verify"
    return (
        f"onnxproof {command} {request.subject.origin} {path}{_input_options(request.subject, worst)} "
        f"--case '{worst.case}' --backend {worst.backend} --seed {seed}"
    )


def _input_options(subject: Subject, worst: Gap) -> str:
    """The options without which the case would not be there: dims that the user opened, and data that it is made of."""
    options = ""
    words = _open_dims(subject.dynamic_shapes)
    if words:
        options += f" --dynamic {','.join(words)}"
    if worst.case.startswith("data-") and isinstance(subject.data, str | Path):
        options += f" --data {subject.data}"
    return options


def _open_dims(dynamic_shapes: Any) -> list[str]:
    """`x:0=batch` for each dim that has a name; none where the shapes are not given by the inputs' names."""
    if not isinstance(dynamic_shapes, Mapping):
        return []
    return [
        f"{name}:{axis}={dim}"
        for name, dims in dynamic_shapes.items()
        if isinstance(dims, Mapping)
        for axis, dim in dims.items()
        if isinstance(dim, str)
    ]
