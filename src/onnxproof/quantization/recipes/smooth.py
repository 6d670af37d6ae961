"""SmoothQuant-style migration: outlier channels behind a LayerNorm become moderate, and the weights that read them take the difference.

Half of the difference in reach (in the logarithm) moves into the weights, which have a scale for each of their own channels (Xiao et al. 2023).
"""

from onnxproof.quantization.recipes.equalize import migrate
from onnxproof.quantization.trials import Applied, QuantizationTrials

ABOUT = "outlier channels behind LayerNorm moved into the weights"


def apply(trials: QuantizationTrials) -> Applied | str:
    """Rescale what LayerNorms make and linear layers read."""
    return migrate(trials, ("LayerNormalization",), strength=0.5)
