"""A quantized file whose answers are right and whose layers fall back to float kernels: ranges with which they run as integers, verified."""

from pathlib import Path

from onnxproof.diagnosis.causes import unfused
from onnxproof.diagnosis.remedy import Mended, request_of_mended
from onnxproof.quantization.kernel_fallback import ASYMMETRIC, find_served_fallback
from onnxproof.results import Cause, Fix, Verdict
from onnxproof.results.judging import level_words
from onnxproof.results.proof import Proof
from onnxproof.system import temporary
from onnxproof.verification.evidence import Evidence
from onnxproof.verification.run import run

_CODE = "unfused"


def regain(evidence: Evidence) -> Mended | None:
    """The file with asymmetric ranges, verified from scratch; None where no layer falls back, or those ranges give no layer its integer kernel.

    The cause is proven where the changed file runs more layers as integers and is still faithful.
    """
    fallback = find_served_fallback(evidence)
    if fallback is None or fallback.asymmetric is None:
        return None
    if fallback.integer_then <= fallback.integer:
        return None
    with temporary.Folder() as folder:
        path = Path(folder) / "asymmetric.onnx"
        proof = run(request_of_mended(evidence.request, fallback.asymmetric, (), path)).proof
    levels = f"{_level(evidence.proof)} before, {_level(proof)} after"
    cause = Cause(
        code=_CODE,
        title=unfused.TITLE,
        proven=proof.verdict is Verdict.FAITHFUL,
        evidence=f"with asymmetric ranges {fallback.tried} ({levels})",
        fix=Fix(kind="graph", what=ASYMMETRIC, verdict=proof.verdict),
    )
    return Mended(
        model=fallback.asymmetric,
        options=(),
        verdict=proof.verdict,
        causes=(cause,),
        proof=proof,
        better=proof.verdict is Verdict.FAITHFUL,
    )


def _level(proof: Proof) -> str:
    level = proof.quality()
    if level is None:
        return "not measured"
    return level_words(level)
