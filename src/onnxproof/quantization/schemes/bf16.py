"""Weights kept in bfloat16 and widened when they are read: half the size, float32's range, float32 arithmetic."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import copied

ABOUT = "bfloat16 weights, float32 arithmetic"
_WORTH = 64
"""Elements from which on a weight is worth a cast."""


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """A cast in front of every reader of a weight."""
    made = copied(model)
    casts = []
    for tensor in made.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and int(np.prod(tensor.dims)) >= _WORTH:
            narrow, name = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16), tensor.name
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
    nodes = list(made.graph.node)
    del made.graph.node[:]
    made.graph.node.extend([*casts, *nodes])
    return made
