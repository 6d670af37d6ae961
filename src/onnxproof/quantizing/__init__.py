"""Quantize without losing the answers: calibration that streams, recipes, tuning to a budget, and where every lost point went.

The package is not called `quantize`, since `onnxproof.quantize` is the function, whatever was imported first.
"""

from onnxproof.quantizing.result import Quantized
from onnxproof.quantizing.tuning import Budget
from onnxproof.quantizing.verb import quantize

__all__ = ["Budget", "Quantized", "quantize"]
