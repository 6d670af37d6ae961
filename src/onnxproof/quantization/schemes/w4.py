"""Weights alone in 4 and 8 bits, in blocks: language models whose weights are what costs.

Every matrix gets the bits that a budget allows it (`blockwise`). A Gemm is written as MatMul and Add first: ONNX Runtime's quantizer would pass it over in silence.
"""

from onnxproof.quantization.blockwise.search import search

ABOUT = "weights only, 4 and 8 bits in blocks, by a budget of bits or losses"

__all__ = ["ABOUT", "search"]
