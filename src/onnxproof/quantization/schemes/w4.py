"""4-bit weights in blocks of 32, for matrix products: language models whose weights are what costs.

A Gemm is written as MatMul and Add first: ONNX Runtime's quantizer would pass it over in silence.
"""

import logging
from collections.abc import Mapping

import numpy as np
import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from onnxproof.errors import UsageError
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import Index, attribute, copied

ABOUT = "4-bit weights only, in blocks of 32"


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """By ONNX Runtime's MatMulNBits."""
    made = _products(model)
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.ERROR)
    quantizer = MatMulNBitsQuantizer(
        made, bits=4, block_size=32, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    found: onnx.ModelProto = quantizer.model.model
    if not any(node.op_type == "MatMulNBits" for node in found.graph.node):
        raise UsageError(
            "nothing-to-quantize",
            "no MatMul or Gemm with constant weights is in this model",
            help="4-bit weights serve matrix products only",
        )
    return found


def _products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every plain Gemm as MatMul and Add."""
    made = copied(model)
    index = Index(made)
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        weight = index.weight_of(node) if node.op_type == "Gemm" else None
        plain = (
            not attribute(node, "transA", 0)
            and attribute(node, "alpha", 1.0) == 1.0
            and attribute(node, "beta", 1.0) == 1.0
        )
        if weight is None or not plain or len(index.readers[weight]) != 1:
            nodes.append(node)
            continue
        if attribute(node, "transB", 0):
            index.store(weight, np.ascontiguousarray(index.array(weight).T))
        product = node.output[0] if len(node.input) < 3 else f"{node.output[0]}_product"
        nodes.append(
            onnx.helper.make_node("MatMul", [node.input[0], weight], [product], name=node.name)
        )
        if len(node.input) > 2:
            nodes.append(
                onnx.helper.make_node(
                    "Add", [product, node.input[2]], [node.output[0]], name=f"{node.name}_bias"
                )
            )
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made
