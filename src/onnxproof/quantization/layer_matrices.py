"""Conv, Gemm and MatMul as one matrix product: what each output element reads as a row, and the weight as (outputs, inputs)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from onnxproof.quantization.float_graph import Index, attribute

Array = np.ndarray[Any, Any]


def input_rows(node: onnx.NodeProto, data: Array, model: onnx.ModelProto) -> Array | None:
    """What each output element reads, one row each; None for what is grouped (each channel reads its own), dilated or not 2-D."""
    if node.op_type != "Conv":
        if attribute(node, "transA", 0):
            return None
        return data.reshape(-1, data.shape[-1])
    kernel = _kernel_shape(node, model)
    rank = len(kernel)
    strides = list(attribute(node, "strides", [1] * rank))
    pads = list(attribute(node, "pads", [0] * 2 * rank))
    dilations = list(attribute(node, "dilations", [1] * rank))
    grouped = int(attribute(node, "group", 1)) != 1
    if grouped or rank != 2 or any(dilation != 1 for dilation in dilations):
        return None
    padded = np.pad(data, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    row_size = data.shape[1] * kernel[0] * kernel[1]
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(-1, row_size)


def _kernel_shape(node: onnx.NodeProto, model: onnx.ModelProto) -> tuple[int, ...]:
    index = Index(model)
    dequantize = index.producers[node.input[1]]
    return tuple(
        attribute(node, "kernel_shape", None) or index.weights[dequantize.input[0]].dims[2:]
    )


def weight_matrix(node: onnx.NodeProto, weight: Array) -> tuple[Array, Callable[[Array], Array]]:
    """The weight as (outputs, inputs), and a function that brings such a matrix back into the weight's shape."""
    if node.op_type == "Conv" or attribute(node, "transB", 0):
        return weight.reshape(weight.shape[0], -1), lambda rows: rows.reshape(weight.shape)
    return weight.T, lambda rows: np.ascontiguousarray(rows.T)
