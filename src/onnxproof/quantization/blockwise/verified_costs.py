"""The costs of a file in few bits that is being verified: on its proof, with what the user should know of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.blockwise import file_costs
from onnxproof.quantization.blockwise.file_costs import FileCosts
from onnxproof.quantization.blockwise.float_twin import StoredMatrix, stored_matrices
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.served_samples import first_samples
from onnxproof.results import Finding, Verdict
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import feed
from onnxproof.system.deadline import Deadline
from onnxproof.verification import block_reading, block_weights
from onnxproof.verification.budget import not_reached
from onnxproof.verification.evidence import Evidence
from onnxproof.verification.rounded_reference import float_weights

Array = np.ndarray[Any, Any]
_JUDGED = (Verdict.FAITHFUL, Verdict.DRIFT, Verdict.DIVERGED)
_LEAST_PASSES = 8
"""Forward passes that the costs of a few matrices take."""


def add_costs(evidence: Evidence, proof: Proof) -> Proof:
    """The proof with a row for each matrix whose own numbers are among the reference's weights."""
    if proof.verdict not in _JUDGED or proof.matrices:
        return proof
    model = onnx.load(evidence.request.path)
    weights = block_reading.find(model)
    if not weights:
        return proof
    if not evidence.budget.affords(_LEAST_PASSES):
        return _told(proof, [not_reached("what each matrix in blocks costs was not measured")])
    matrices = _matched(evidence, weights)
    missing = len(weights) - sum(len(each.weights) for each in matrices)
    findings = []
    if missing:
        findings.append(_unmatched(missing, len(weights)))
    if sum(each.plain.nbytes for each in matrices) > file_costs.MOST_BYTES:
        findings.append(_too_large(matrices))
        return _told(proof, findings)
    costs = measure_file(model, matrices, _samples(evidence), evidence.budget.end)
    if costs is None:
        return _told(proof, findings)
    findings = [*_about(costs), *findings]
    return _told(replace(proof, matrices=costs.matrices), findings)


def measure_file(
    model: onnx.ModelProto,
    matrices: Sequence[StoredMatrix],
    samples: Sequence[Batch],
    deadline: Deadline,
) -> FileCosts | None:
    """None where nothing is known of the matrices, or the graph can't be run with float ones."""
    if not matrices:
        return None
    try:
        return file_costs.measure(model, matrices, samples, deadline)
    except (OnnxproofError, ValueError, KeyError, IndexError, np.linalg.LinAlgError):
        return None  # the verdict stands; what the matrices cost is not known


def _told(proof: Proof, findings: Sequence[Finding]) -> Proof:
    return replace(proof, findings=(*proof.findings, *findings))


def _matched(
    evidence: Evidence, weights: Sequence[block_weights.BlockWeight]
) -> list[StoredMatrix]:
    origins = block_weights.find_origins(weights, float_weights(evidence.reference))
    return stored_matrices(weights, origins)


def _samples(evidence: Evidence) -> list[Batch]:
    request, signature = evidence.request, evidence.signature
    items = first_samples(request.subject, signature, evidence.reference.example())
    return [
        (str(place), feed({name: np.asarray(array) for name, array in item.items()}, signature))
        for place, item in enumerate(items)
    ]


def _unmatched(missing: int, count: int) -> Finding:
    return Finding(
        code="unmatched-matrices",
        what=f"{missing} of {count} matrices in blocks are none of the reference's weights, whole or joined: what they cost is not known",
        help="weights that were scaled against each other or rotated have no float original to compare with",
    )


def _too_large(matrices: Sequence[StoredMatrix]) -> Finding:
    size = sum(each.plain.nbytes for each in matrices) / 2**30
    return Finding(
        code="matrix-costs-left-out",
        what=f"what each matrix costs was not measured: {size:.1f} GB of float weights would be copied for each of them",
        help="`quantize --scheme w4` measures it on the float file",
    )


def _about(costs: FileCosts) -> list[Finding]:
    """Who costs most, and what the next steps of the costliest ones give."""
    if costs.total <= 0:
        return []
    first = costs.matrices[0]
    of_token = " a token" if costs.unit == "nats" else ""
    what = f"its {len(costs.matrices)} matrices in blocks cost {costs.total:.3g} {costs.unit}{of_token}, of which `{first.name}` has {first.cost / costs.total:.0%}"
    if first.parts:
        part = first.parts[0]
        what += f" ({part.what}: {part.cost / first.cost:.0%} of that)"
    advice = ""
    if costs.total_after is not None and costs.total_after < costs.total:
        advice = (
            f"tried: with {_in_words(costs)} it costs {costs.total_after:.3g} on the same samples"
        )
    return [Finding(code="matrix-costs", what=what, help=advice)]


def _in_words(costs: FileCosts) -> str:
    step = costs.steps[0]
    words = f"`{step.matrix.name}` {step.words}"
    if step.blocks.form.bits > step.matrix.weight.packing.bits:
        words = f"`{step.matrix.name}` in {step.words}"
    if len(costs.steps) > 1:
        words += f", and {len(costs.steps) - 1} more"
    extra = sum(each.next_bytes for each in costs.matrices[: len(costs.steps)])
    return f"{words} (+{extra:,} bytes)"
