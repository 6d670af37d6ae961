"""Operators of ONNX Runtime's own domain (`com.microsoft`), which its optimizer and its quantizer write into files.

One file a family. Each operator was compared with ONNX Runtime's kernel over random configurations, or with the same
computed by other means where the CPU has no kernel (`bench/evaluator`). What is not here is refused, and nothing is guessed: an
option that was not compared raises.
"""

from onnx.reference.op_run import OpRun

from onnxproof.runtimes.evaluator import quantized as standard_quantized
from onnxproof.runtimes.evaluator.contrib import (
    activations,
    attention,
    blocks,
    convolution,
    experts,
    group_query,
    matmul,
    nchwc,
    normalization,
    packed_attention,
    quantized,
    rotary,
    tensors,
)
from onnxproof.runtimes.evaluator.contrib.operator import DOMAIN


def find(domain: str, op_type: str) -> type[OpRun] | None:
    """Our implementation of an operator of one of ONNX Runtime's domains, or None."""
    return DOMAINS.get(domain, {}).get(op_type)


OPERATORS: dict[str, type[OpRun]] = {
    **activations.OPERATORS,
    **attention.OPERATORS,
    **blocks.OPERATORS,
    **convolution.OPERATORS,
    **experts.OPERATORS,
    **group_query.OPERATORS,
    **matmul.OPERATORS,
    **normalization.OPERATORS,
    **packed_attention.OPERATORS,
    **quantized.OPERATORS,
    **rotary.OPERATORS,
    **tensors.OPERATORS,
    "QuantizeLinear": standard_quantized.QuantizeLinear,
    "DequantizeLinear": standard_quantized.DequantizeLinear,
}
DOMAINS = {DOMAIN: OPERATORS, nchwc.DOMAIN: nchwc.OPERATORS}
__all__ = ["DOMAIN", "DOMAINS", "OPERATORS", "find"]
