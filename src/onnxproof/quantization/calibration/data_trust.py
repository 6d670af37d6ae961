"""The calibration data may not be its own judge: it is compared with the model's statistics, the example and held-out samples, and a doubt makes the verdict at best DRIFT."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.inputs import data_stream as user_data
from onnxproof.inputs import training_statistics
from onnxproof.onnxmodel import onnx_file
from onnxproof.quantization.calibration import batches, data_quality
from onnxproof.quantization.calibration.calibration_pass import Pass
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.scoring import Outputs, compute_outputs
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding, Gap, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]
SUSPICIOUS = "calibration-suspicious"
_MOST_SAMPLES = 256
"""Samples that are compared with the model's own statistics (not measured)."""


def examine(
    subject: Subject,
    plain: onnx.ModelProto,
    source: Path,
    seen: Pass,
    kept: Sequence[batches.Batch],
    example: Any,
) -> list[Finding]:
    """Everything that can be said of calibration data before a model is made of it."""
    opinion = training_statistics.examine(
        subject, open_reference(subject, Clock()), first_batches(kept), onnx_file.read(source)
    )
    findings = data_quality.examine(
        seen,
        compute_outputs(plain, kept),
        expected=example,
        kept=kept,
        fits=opinion.asked and not opinion.doubt,
        elsewhere=lambda: _outputs_elsewhere(plain, kept),
    )
    if seen.rebuilt:
        findings.append(
            Finding(
                code="cache-rebuilt",
                what=f"the calibration cache was damaged and has been made again ({seen.rebuilt})",
                help="nothing is lost but time",
            )
        )
    return [*_doubt(opinion.doubt), *findings]


def _doubt(doubt: str) -> list[Finding]:
    if not doubt:
        return []
    return [training_statistics.finding(SUSPICIOUS, "the calibration data", doubt)]


def examine_calibration_data(subject: Subject, calibration: Any) -> list[Finding]:
    """The same of data that a quantized file, whoever made it, was calibrated on."""
    reference = open_reference(subject, Clock())
    example = reference.example()
    try:
        seen, kept = _read_first(calibration, list(example))
    except OnnxproofError as why:
        return [
            Finding(
                code="calibration-not-read",
                what=f"the calibration data could not be looked at: {why.what}",
                help=why.help,
            )
        ]
    opinion = training_statistics.examine(subject, reference, [batch for _, batch in kept])
    findings = data_quality.examine(
        seen,
        [],
        expected=example if _example_was_given(subject) else None,
        kept=kept,
        fits=opinion.asked and not opinion.doubt,
    )
    return [*_doubt(opinion.doubt), *findings]


def _read_first(calibration: Any, names: list[str]) -> tuple[Pass, list[batches.Batch]]:
    """The first samples, and the statistics of their float inputs."""
    seen = Pass(model_hash="")
    kept: list[batches.Batch] = []
    for label, arrays in user_data.stream(calibration, names):
        batch = {name: np.asarray(array) for name, array in arrays.items()}
        kept.append((label, batch))
        seen.samples += batches.count_samples(batch)
        for name, array in batch.items():
            if array.dtype.kind == "f":
                seen.fitted.setdefault(name, Statistics()).update(array, label)
        if seen.samples >= _MOST_SAMPLES:
            break
    return seen, kept


def first_batches(
    kept: Sequence[batches.Batch], most: int = _MOST_SAMPLES
) -> list[dict[str, Array]]:
    """The first batches with about so many samples in all."""
    chosen: list[dict[str, Array]] = []
    count = 0
    for _, batch in kept:
        if count >= most:
            break
        chosen.append(batch)
        count += batches.count_samples(batch)
    return chosen


def _outputs_elsewhere(plain: onnx.ModelProto, kept: Sequence[batches.Batch]) -> Outputs:
    """The float model's outputs on what is surely no calibration data: shuffled, negative and upside down."""
    label, batch = kept[0]
    rng = np.random.default_rng(0)
    distortions: tuple[Callable[[Array], Array], ...] = (
        lambda a: rng.permutation(a.reshape(-1)).reshape(a.shape),
        lambda a: -a,
        lambda a: np.ascontiguousarray(np.flip(a, -1)),
        lambda a: (rng.standard_normal(a.shape) * a.std() + a.mean()).astype(a.dtype),
        lambda a: np.ascontiguousarray(np.flip(a, -2)) if a.ndim > 2 else a * 3,
    )
    distorted = []
    for distort in distortions:
        arrays = dict(batch)
        for name, array in batch.items():
            if array.dtype.kind == "f" and array.ndim > 1:
                arrays[name] = distort(array)
        distorted.append((label, arrays))
    return compute_outputs(plain, distorted)


def weigh_findings(findings: Sequence[Finding], proof: Proof, subject: Subject) -> list[Finding]:
    """The findings, with what the proof adds: data of the user's own lifts the doubt of few samples, and a real example counts, too."""
    if subject.data is not None:
        return _without_few_samples(findings, proof)
    return [*findings, *_compare_example(proof, subject)]


def _compare_example(proof: Proof, subject: Subject) -> list[Finding]:
    """A finding where a real example is below the policy's least level, and held-out calibration data is not."""
    known = [gap for gap in proof.gaps if gap.sqnr_db is not None and gap.domain is None]
    example_db = _worst_db([gap for gap in known if gap.case == "example"])
    data_db = _worst_db([gap for gap in known if gap.group == "data"])
    if example_db is None or data_db is None:
        return []
    if not example_db < proof.policy.drift_db <= data_db or not _is_real_example(subject):
        return []
    return [
        Finding(
            code="example-loses",
            what=f"{example_db:.1f} dB are left on the example inputs, and {data_db:.1f} dB on calibration data that was held out",
            help="one of them is not what is served: give an example and calibration data as they are served",
            doubts=True,
        )
    ]


def _without_few_samples(findings: Sequence[Finding], proof: Proof) -> list[Finding]:
    """Few calibration samples are no doubt where the proof has compared data of the user's own."""
    if not any(gap.group == "data" for gap in proof.gaps):
        return list(findings)
    return [
        replace(finding, doubts=False) if finding.code == "few-samples" else finding
        for finding in findings
    ]


def _worst_db(gaps: Sequence[Gap]) -> float | None:
    """The SQNR of the worst output of a backend, over all cases; None without gaps."""
    by_output: dict[tuple[str, str], list[Gap]] = {}
    for gap in gaps:
        by_output.setdefault((gap.backend, gap.output), []).append(gap)
    return min((judging.pooled_db(group) for group in by_output.values()), default=None)


def _example_was_given(subject: Subject) -> bool:
    """False for a file without example inputs: its example would be made up."""
    return subject.onnx is None or bool(subject.args or subject.kwargs)


def _is_real_example(subject: Subject) -> bool:
    """True when somebody chose the example: it was given, and no input of it looks like a random tensor or a constant one."""
    if not _example_was_given(subject):
        return False
    example = open_reference(subject, Clock()).example()
    floats = [array for array in example.values() if array.dtype.kind == "f"]
    return bool(floats) and not any(training_statistics.looks_made_up(array) for array in floats)


def judge_with_doubts(proof: Proof, findings: Sequence[Finding]) -> Proof:
    """The proof, judged with the doubts among the findings; what it says of the same data by itself gives way to them."""
    doubts = tuple(finding for finding in findings if finding.doubts)
    if not doubts:
        return proof
    own = proof.findings
    if any(finding.code == SUSPICIOUS for finding in doubts):
        own = tuple(finding for finding in own if finding.code != "data-suspicious")
    return replace(proof, findings=(*own, *doubts)).judged(proof.policy)
