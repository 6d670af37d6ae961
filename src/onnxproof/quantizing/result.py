"""What quantizing gave: the file, its proof, what was tried, what it costs and keeps."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.proof import Proof
from onnxproof.quantizing.bench import Score
from onnxproof.quantizing.census import Census
from onnxproof.quantizing.ledger import Entry
from onnxproof.quantizing.paired import Metric, Outcome
from onnxproof.quantizing.tuning import Budget, Point, Step
from onnxproof.types import Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """What `quantize` returns. It has no truth value of its own: ask for `result.verdict` and `result.met`."""

    path: Path
    scheme: str
    proof: Proof
    score: Score
    """On samples that no recipe saw, where there are enough of them."""
    metric: Metric | None
    budget: Budget
    met: bool
    """True when the budget holds: a drop is shown to be within it, and the latency is."""
    outcome: Outcome
    """What the evaluated samples say about the largest drop (without one: whether the decibels that were aimed at are reached)."""
    samples: int
    steps: tuple[Step, ...]
    front: tuple[Point, ...]
    ledger: tuple[Entry, ...]
    census: Census
    findings: tuple[Finding, ...]
    float_size: int
    size: int
    float_latency_s: float
    latency_s: float
    kept_float: tuple[str, ...] = ()
    tried: int = 0
    recalled: int = 0
    """How many of the graphs that were tried an earlier run had scored."""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        raise TypeError("a quantized model is more than a yes or no: use result.verdict, result.met or result.proof")

    @property
    def verdict(self) -> Verdict:
        """The proof's."""
        return self.proof.verdict

    def to_json(self, path: str | Path) -> None:
        """Write everything that was measured, with the proof in its own form."""
        write: Any = importlib.import_module("onnxproof.report.quantized_writer").write
        write(self, path)
