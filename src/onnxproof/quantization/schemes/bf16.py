"""Weights kept in bfloat16 and widened when they are read: half the size, float32's range, float32 arithmetic."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import copy_model

ABOUT = "bfloat16 weights, float32 arithmetic"
_WORTH = 64
"""Elements from which on a weight is worth a cast (not measured)."""


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """A cast in front of every consumer of a weight."""
    changed = copy_model(model)
    casts = []
    for tensor in changed.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and int(np.prod(tensor.dims)) >= _WORTH:
            name = tensor.name
            narrow = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
            tensor.CopyFrom(
                onnx.TensorProto(
                    name=f"{name}_bf16",
                    data_type=onnx.TensorProto.BFLOAT16,
                    dims=narrow.shape,
                    raw_data=narrow.tobytes(),
                )
            )
            casts.append(
                onnx.helper.make_node(
                    "Cast",
                    [f"{name}_bf16"],
                    [name],
                    name=f"{name}_widened",
                    to=onnx.TensorProto.FLOAT,
                )
            )
    nodes = list(changed.graph.node)
    del changed.graph.node[:]
    changed.graph.node.extend([*casts, *nodes])
    return changed
