"""The error, stage by stage: float in PyTorch, float in ONNX, Q/DQ as the graph says it, Q/DQ as the runtime serves it, every other backend."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxproof.errors import OnnxproofError
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.quantization.workbench import Answers, answers, compare
from onnxproof.reference.protocol import open_reference
from onnxproof.reference.subject import Subject
from onnxproof.runtimes import open_session
from onnxproof.runtimes.session.execution import Clock

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One stage."""

    stage: str
    sqnr_db: float
    """Against the first stage."""
    steps: float
    """The worst difference from the stage before, in steps of an 8-bit output (its range over 255)."""
    agreement: float | None = None


def ledger(
    subject: Subject,
    plain: onnx.ModelProto,
    quantized: onnx.ModelProto | Path,
    samples: Sequence[Batch],
    backends: Sequence[str] = (),
) -> list[Entry]:
    """Run every stage on the same samples."""
    stages: list[tuple[str, Answers]] = []
    if subject.onnx is None:
        stages.append(("PyTorch, float", _module(subject, samples)))
    stages.append(("ONNX, float", answers(plain, samples)))
    model = onnx.load(quantized) if isinstance(quantized, Path) else quantized
    stages += [
        ("Q/DQ, not optimised", answers(model, samples, "disabled")),
        ("Q/DQ, as served (ort)", answers(model, samples)),
    ]
    if isinstance(quantized, Path):
        for backend in backends:
            if backend not in ("ort", "ort:all", "ort:disabled"):
                stages += [
                    (f"Q/DQ on {backend}", found)
                    for found in _elsewhere(backend, quantized, samples)
                ]
    entries = []
    for place, (name, found) in enumerate(stages):
        before = stages[max(place - 1, 0)][1]
        score = compare(stages[0][1], found)
        entries.append(
            Entry(
                stage=name,
                sqnr_db=score.sqnr_db,
                steps=_steps(before, found, stages[0][1]),
                agreement=score.agreement,
            )
        )
    return entries


def _module(subject: Subject, samples: Sequence[Batch]) -> Answers:
    reference = open_reference(subject, Clock())
    names = list(reference.example())
    return [reference.run(dict(zip(names, batch.values(), strict=True))) for _, batch in samples]


def _elsewhere(backend: str, path: Path, samples: Sequence[Batch]) -> list[Answers]:
    """Nothing where the backend refuses the model: the proof tells that."""
    try:
        session = open_session(backend, path)
        return [
            [[array for array in session.run(batch) if array is not None] for _, batch in samples]
        ]
    except OnnxproofError:
        return []


def _steps(before: Answers, after: Answers, reference: Answers) -> float:
    worst = 0.0
    for place in range(len(reference[0])):
        if reference[0][place].dtype.kind == "f":
            low = min(float(batch[place].min(initial=0)) for batch in reference)
            high = max(float(batch[place].max(initial=0)) for batch in reference)
            far = max(
                float(np.abs(a[place] - b[place]).max(initial=0))
                for a, b in zip(before, after, strict=True)
            )
            worst = max(worst, far * 255 / (high - low) if high > low else 0.0)
    return worst
