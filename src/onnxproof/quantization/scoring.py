"""How near the outputs of a graph are to those of the float graph: SQNR in decibels, and agreement of the best class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from onnxproof.numerics.embeddings import is_embedding, retrieval
from onnxproof.quantization.calibration.batches import Batch
from onnxproof.runtimes import ort
from onnxproof.verification.quantized import decibels

Array = np.ndarray[Any, Any]
Outputs = list[list[Array]]
"""Outputs by batch."""
_MOST_CLASSES = 4096
"""A last axis beyond this is not taken for scores of classes (not measured)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How near a graph's outputs are to the float graph's."""

    sqnr_db: float
    """Of the worst output."""
    agreement: float | None
    """Share of samples whose best class is the same, where outputs look like scores."""

    retrieval: float | None = None
    """Of embeddings: the share of rows whose nearest other row is the same."""

    def better(self, other: "Score", margin: float = 0.0) -> bool:
        """More decibels, by more than a margin."""
        return self.sqnr_db > other.sqnr_db + margin


def describe_change(before: Score, after: Score) -> str:
    """Both scores beside each other, for people.

    >>> describe_change(Score(sqnr_db=2.7, agreement=0.72), Score(sqnr_db=37.2, agreement=1.0))
    '2.7 dB become 37.2 dB, and the same best class for 72.00% becomes 100.00%'
    """
    words = f"{before.sqnr_db:.1f} dB become {after.sqnr_db:.1f} dB"
    if before.agreement is None or after.agreement is None:
        return words
    return (
        f"{words}, and the same best class for {before.agreement:.2%} becomes {after.agreement:.2%}"
    )


REFUSED = Score(sqnr_db=-math.inf, agreement=None)
"""The score of a graph that the runtime refuses, and of none at all."""


def compute_outputs(model: onnx.ModelProto, samples: Sequence[Batch], level: str = "") -> Outputs:
    """The outputs of a graph on the kept samples."""
    session = ort.open_model(model, level)
    return [[array for array in session.run(batch) if array is not None] for _, batch in samples]


@dataclass(slots=True)
class _OutputSums:
    """One output, summed over the batches so far."""

    signal: float = 0.0
    error: float = 0.0
    same: int = 0
    count: int = 0
    embeddings: list[tuple[Array, Array]] = field(default_factory=list)

    def retrieval(self) -> float | None:
        """Whether neighbours are kept, over all batches; None for what is no embedding."""
        if not self.embeddings:
            return None
        width = self.embeddings[0][0].shape[-1]
        sides = [
            np.concatenate([side.reshape(-1, width) for side in batches])
            for batches in zip(*self.embeddings, strict=True)
        ]
        return retrieval(*sides)

    def add(self, reference: Array, candidate: Array) -> None:
        """Add one batch: squares of floats, equal elements of everything else, equal best classes of what looks like scores."""
        if reference.dtype.kind != "f":
            self.same += int((reference == candidate).sum())
            self.count += reference.size
            return
        reference = reference.astype(np.float64)
        candidate = candidate.astype(np.float64)
        self.signal += float((reference * reference).sum())
        self.error += float(((candidate - reference) ** 2).sum())
        if is_embedding(reference):
            self.embeddings.append((reference, candidate))
        elif reference.ndim >= 2 and 2 <= reference.shape[-1] <= _MOST_CLASSES:
            self.same += int((reference.argmax(-1) == candidate.argmax(-1)).sum())
            self.count += int(np.prod(reference.shape[:-1]))

    def sqnr_db(self) -> float:
        """Minus infinity where the candidate is not finite."""
        if not math.isfinite(self.error):
            return -math.inf
        return decibels(self.signal, self.error)


def compare(reference: Outputs, candidate: Outputs) -> Score:
    """SQNR of the worst output over all batches, and agreement of the best class."""
    sums = [_OutputSums() for _ in reference[0]]
    for place, output in enumerate(sums):
        for reference_batch, candidate_batch in zip(reference, candidate, strict=True):
            output.add(reference_batch[place], candidate_batch[place])
    levels = [output.sqnr_db() for output in sums if output.signal or output.error]
    count = sum(output.count for output in sums)
    agreement = None
    if count:
        agreement = sum(output.same for output in sums) / count
    kept = [share for output in sums if (share := output.retrieval()) is not None]
    return Score(
        sqnr_db=min(levels, default=math.inf),
        agreement=agreement,
        retrieval=min(kept, default=None),
    )
