"""What quantizing to few bits gave: bits and cost of every matrix, the front of what was tried, and what the texts say."""

from dataclasses import dataclass

from onnxproof.quantization.paired_metric import Metric
from onnxproof.results.blocks import BlockPoint, MatrixCost


@dataclass(frozen=True, slots=True, kw_only=True)
class Blockwise:
    """The weights in blocks."""

    unit: str
    """Of costs: `nats` of KL a token, or `noise` (energy of the error over that of the outputs)."""
    bits: float
    """The mean over all weights in blocks, with scales and zero points."""
    accuracy_level: int
    """Of MatMulNBits: 0 computes in float, 4 rounds inputs to 8 bits; chosen by cost and speed."""
    level_reason: str
    matrices: tuple[MatrixCost, ...]
    front: tuple[BlockPoint, ...]
    kl: Metric | None = None
    """Mean KL in nats on texts that chose nothing: `drop` with its interval."""
    perplexity: Metric | None = None
    """The rise of the cross-entropy there, paired: 0.02 is about 2 % of perplexity."""
    float_perplexity: float | None = None
    quantized_perplexity: float | None = None
