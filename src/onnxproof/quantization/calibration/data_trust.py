"""The calibration data may not be its own judge: the model's statistics, the example and held-out samples are asked, and what they doubt makes the verdict at best DRIFT."""

from collections.abc import Sequence
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
from onnxproof.quantization.calibration.observe import Pass
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.workbench import Answers, answers
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.results import Finding, Gap, judging
from onnxproof.results.proof import Proof
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]
SUSPICIOUS = "calibration-suspicious"
_ASKED = 256
"""Samples on which the model's own statistics are asked."""


def examine(
    subject: Subject,
    plain: onnx.ModelProto,
    source: Path,
    seen: Pass,
    kept: Sequence[batches.Batch],
    example: Any,
) -> list[Finding]:
    """Everything that can be said of calibration data before a model is made of it."""
    said = training_statistics.examine(
        subject, open_reference(subject, Clock()), first(kept), onnx_file.read(source)
    )
    found = data_quality.examine(
        seen,
        answers(plain, kept),
        expected=example,
        kept=kept,
        fits=said.asked and not said.doubt,
        elsewhere=lambda: _made_up(plain, kept),
    )
    if said.doubt:
        found.insert(0, training_statistics.finding(SUSPICIOUS, "the calibration data", said.doubt))
    if seen.rebuilt:
        found.append(
            Finding(
                code="cache-rebuilt",
                what=f"the calibration cache was damaged and has been made again ({seen.rebuilt})",
                help="nothing is lost but time",
            )
        )
    return found


def given(subject: Subject, calibration: Any) -> list[Finding]:
    """The same of data that a quantized file, whoever made it, was calibrated on."""
    reference = open_reference(subject, Clock())
    example = reference.example()
    seen, kept = Pass(model_hash=""), list[batches.Batch]()
    try:
        for label, arrays in user_data.stream(calibration, list(example)):
            kept.append((label, {name: np.asarray(array) for name, array in arrays.items()}))
            seen.samples += batches.samples(kept[-1][1])
            for name, array in kept[-1][1].items():
                if array.dtype.kind == "f":
                    seen.fitted.setdefault(name, Statistics()).update(array, label)
            if seen.samples >= _ASKED:
                break
    except OnnxproofError as why:
        return [
            Finding(
                code="calibration-not-read",
                what=f"the calibration data could not be looked at: {why.what}",
                help=why.help,
            )
        ]
    said = training_statistics.examine(subject, reference, [batch for _, batch in kept])
    real = subject.onnx is None or bool(subject.args or subject.kwargs)
    found = data_quality.examine(
        seen, [], expected=example if real else None, kept=kept, fits=said.asked and not said.doubt
    )
    return [
        *(
            [training_statistics.finding(SUSPICIOUS, "the calibration data", said.doubt)]
            if said.doubt
            else []
        ),
        *found,
    ]


def first(kept: Sequence[batches.Batch], most: int = _ASKED) -> list[dict[str, Array]]:
    """The first batches with about so many samples in all."""
    found: list[dict[str, Array]] = []
    count = 0
    for _, batch in kept:
        if count >= most:
            break
        found.append(batch)
        count += batches.samples(batch)
    return found


def _made_up(plain: onnx.ModelProto, kept: Sequence[batches.Batch]) -> Answers:
    """The float model's answers on what is surely no calibration data: shuffled, negative and upside down."""
    label, batch = kept[0]
    rng = np.random.default_rng(0)
    ways = (
        lambda a: rng.permutation(a.reshape(-1)).reshape(a.shape),
        lambda a: -a,
        lambda a: np.ascontiguousarray(np.flip(a, -1)),
        lambda a: (rng.standard_normal(a.shape) * a.std() + a.mean()).astype(a.dtype),
        lambda a: np.ascontiguousarray(np.flip(a, -2)) if a.ndim > 2 else a * 3,
    )
    made = [
        (
            label,
            {
                name: way(array) if array.dtype.kind == "f" and array.ndim > 1 else array
                for name, array in batch.items()
            },
        )
        for way in ways
    ]
    return answers(plain, made)


def weighed(findings: Sequence[Finding], proof: Proof, subject: Subject) -> list[Finding]:
    """The findings, with what the proof adds: data of the user's own lifts the doubt of few samples, and a real example is asked, too."""
    if subject.data is not None:
        asked = any(gap.group == "data" for gap in proof.gaps)
        return [
            replace(f, doubts=False) if f.code == "few-samples" and asked else f for f in findings
        ]
    known = [gap for gap in proof.gaps if gap.sqnr_db is not None and gap.domain is None]
    level, data = (
        _level([gap for gap in known if gap.case == "example"]),
        _level([gap for gap in known if gap.group == "data"]),
    )
    least = proof.policy.drift_db
    if level is None or data is None or not level < least <= data or not _real_example(subject):
        return list(findings)
    return [
        *findings,
        Finding(
            code="example-loses",
            what=f"{level:.1f} dB are left on the example inputs, and {data:.1f} dB on calibration data that was held out",
            help="one of them is not what is served: give an example and calibration data as they are served",
            doubts=True,
        ),
    ]


def _level(gaps: Sequence[Gap]) -> float | None:
    return min(
        (
            judging.pooled_db([gap for gap in gaps if (gap.backend, gap.output) == key])
            for key in {(gap.backend, gap.output) for gap in gaps}
        ),
        default=None,
    )


def _real_example(subject: Subject) -> bool:
    """True when somebody chose the example: it was given, and no input of it looks like a random tensor or a constant one."""
    if subject.onnx is not None and not (subject.args or subject.kwargs):
        return False
    example = open_reference(subject, Clock()).example()
    floats = [array for array in example.values() if array.dtype.kind == "f"]
    return bool(floats) and not any(training_statistics.looks_made_up(array) for array in floats)


def doubted(proof: Proof, findings: Sequence[Finding]) -> Proof:
    """The proof, judged with the doubts among the findings; what it says of the same data by itself gives way to them."""
    doubts = tuple(finding for finding in findings if finding.doubts)
    if not doubts:
        return proof
    suspicious = any(finding.code == SUSPICIOUS for finding in doubts)
    others = [
        finding
        for finding in proof.findings
        if not (suspicious and finding.code == "data-suspicious")
    ]
    return replace(proof, findings=(*others, *doubts)).judged(proof.policy)
