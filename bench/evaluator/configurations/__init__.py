"""Random configurations of operators, one file a family; importing this package registers all of them."""

from bench.evaluator.configurations import (
    attention,
    convolution,
    experts,
    matmul,
    normalization,
    quantized,
    tensors,
)
from bench.evaluator.configurations.draw import CONFIGURATIONS

__all__ = [
    "CONFIGURATIONS",
    "attention",
    "convolution",
    "experts",
    "matmul",
    "normalization",
    "quantized",
    "tensors",
]
