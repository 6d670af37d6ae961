"""What quantizing gave: the file, its proof, what was tried, what it costs and keeps."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxproof.quantization.blockwise.result import Blockwise
from onnxproof.quantization.kernel_report import KernelCounts
from onnxproof.quantization.paired_metric import Metric, Outcome
from onnxproof.quantization.scoring import Score
from onnxproof.quantization.speed_report import Speed
from onnxproof.quantization.stage_errors import StageError
from onnxproof.quantization.tuning_state import Budget, Point, Step
from onnxproof.results import Finding, Verdict
from onnxproof.results.proof import Proof


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
    ledger: tuple[StageError, ...]
    census: KernelCounts
    findings: tuple[Finding, ...]
    float_size: int
    size: int
    float_latency_s: float
    latency_s: float
    speed: Speed | None = None
    """The ratio of the two, with its noise."""
    kept_float: tuple[str, ...] = ()
    blockwise: Blockwise | None = None
    """Bits and cost of every matrix, where weights are in blocks."""
    tried: int = 0
    recalled: int = 0
    """How many of the graphs that were tried an earlier run had scored."""
    seconds: float = 0.0

    def __bool__(self) -> bool:
        raise TypeError(
            "a quantized model is more than a yes or no: use result.verdict, result.met or result.proof"
        )

    @property
    def verdict(self) -> Verdict:
        """The proof's."""
        return self.proof.verdict

    def to_json(self, path: str | Path) -> None:
        """Write everything that was measured, with the proof in its own form."""
        write: Any = importlib.import_module("onnxproof.report.quantized_json").write
        write(self, path)
