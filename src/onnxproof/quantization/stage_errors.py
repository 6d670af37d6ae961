"""The error, stage by stage: float in PyTorch, float in ONNX, Q/DQ as the graph says it, Q/DQ as the runtime serves it, every other backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.scoring import Outputs, compare, compute_outputs
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session.execution import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class StageError:
    """One stage."""

    stage: str
    sqnr_db: float
    """Against the first stage."""
    steps: float
    """The worst difference from the stage before, in steps of an 8-bit output (its range over 255)."""
    agreement: float | None = None


def measure_stages(
    subject: Subject,
    plain: onnx.ModelProto,
    quantized: onnx.ModelProto | Path,
    samples: Sequence[Batch],
    backends: Sequence[str] = (),
) -> list[StageError]:
    """Run every stage on the same samples."""
    stages: list[tuple[str, Outputs]] = []
    if subject.onnx is None:
        stages.append(("PyTorch, float", _run_module(subject, samples)))
    stages.append(("ONNX, float", compute_outputs(plain, samples)))
    model = onnx.load(quantized) if isinstance(quantized, Path) else quantized
    stages.append(("Q/DQ, not optimised", compute_outputs(model, samples, "disabled")))
    stages.append(("Q/DQ, as served (ort)", compute_outputs(model, samples)))
    if isinstance(quantized, Path):
        stages += _run_backends(backends, quantized, samples)
    first = previous = stages[0][1]
    errors = []
    for name, outputs in stages:
        score = compare(first, outputs)
        errors.append(
            StageError(
                stage=name,
                sqnr_db=score.sqnr_db,
                steps=_worst_steps(previous, outputs, first),
                agreement=score.agreement,
            )
        )
        previous = outputs
    return errors


def _run_module(subject: Subject, samples: Sequence[Batch]) -> Outputs:
    reference = open_reference(subject, Clock())
    names = list(reference.example())
    return [reference.run(dict(zip(names, batch.values(), strict=True))) for _, batch in samples]


def _run_backends(
    backends: Sequence[str], path: Path, samples: Sequence[Batch]
) -> list[tuple[str, Outputs]]:
    """The outputs of every other backend; one that refuses the model is left out, since the proof says so."""
    stages = []
    for backend in backends:
        if backend in ("ort", "ort:all", "ort:disabled"):
            continue
        try:
            session = open_session(backend, path)
            outputs = [
                [array for array in session.run(batch) if array is not None] for _, batch in samples
            ]
        except OnnxproofError:
            continue
        stages.append((f"Q/DQ on {backend}", outputs))
    return stages


def _worst_steps(before: Outputs, after: Outputs, reference: Outputs) -> float:
    worst = 0.0
    for place, first in enumerate(reference[0]):
        if first.dtype.kind != "f":
            continue
        low = min(float(batch[place].min(initial=0)) for batch in reference)
        high = max(float(batch[place].max(initial=0)) for batch in reference)
        if not high > low:
            continue
        difference = max(
            float(np.abs(a[place] - b[place]).max(initial=0))
            for a, b in zip(before, after, strict=True)
        )
        worst = max(worst, difference * 255 / (high - low))
    return worst
