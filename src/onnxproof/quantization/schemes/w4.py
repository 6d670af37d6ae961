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
from onnxproof.quantization.float_graph import Index, attribute, copy_model

ABOUT = "4-bit weights only, in blocks of 32"


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """By ONNX Runtime's MatMulNBits."""
    products = _split_gemms(model)
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.ERROR)
    quantizer = MatMulNBitsQuantizer(
        products, bits=4, block_size=32, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    quantized: onnx.ModelProto = quantizer.model.model
    if not any(node.op_type == "MatMulNBits" for node in quantized.graph.node):
        raise UsageError(
            "nothing-to-quantize",
            "no MatMul or Gemm with constant weights is in this model",
            help="4-bit weights serve matrix products only",
        )
    return quantized


def _split_gemms(model: onnx.ModelProto) -> onnx.ModelProto:
    """Every plain Gemm as MatMul and Add."""
    changed = copy_model(model)
    index = Index(changed)
    nodes: list[onnx.NodeProto] = []
    for node in changed.graph.node:
        weight = index.weight_of(node)
        if weight is None or not _is_plain_gemm(node) or len(index.consumers[weight]) != 1:
            nodes.append(node)
        else:
            nodes += _split_gemm(index, node, weight)
    del changed.graph.node[:]
    changed.graph.node.extend(nodes)
    return changed


def _is_plain_gemm(node: onnx.NodeProto) -> bool:
    return (
        node.op_type == "Gemm"
        and not attribute(node, "transA", 0)
        and attribute(node, "alpha", 1.0) == 1.0
        and attribute(node, "beta", 1.0) == 1.0
    )


def _split_gemm(index: Index, node: onnx.NodeProto, weight: str) -> list[onnx.NodeProto]:
    make_node = onnx.helper.make_node
    if attribute(node, "transB", 0):
        index.store(weight, np.ascontiguousarray(index.array(weight).T))
    if len(node.input) < 3:
        return [make_node("MatMul", [node.input[0], weight], [node.output[0]], name=node.name)]
    product = f"{node.output[0]}_product"
    return [
        make_node("MatMul", [node.input[0], weight], [product], name=node.name),
        make_node("Add", [product, node.input[2]], [node.output[0]], name=f"{node.name}_bias"),
    ]
