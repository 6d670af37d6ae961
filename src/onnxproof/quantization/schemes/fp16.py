"""Half precision, except where values would not fit: nodes whose inputs or outputs reach beyond what float16 holds stay float32."""

from collections.abc import Mapping

import onnx
from onnxruntime.transformers.float16 import convert_float_to_float16

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import copy_model

ABOUT = "float16, with float32 where values would overflow"
_LARGEST = 65504.0 / 4
"""A quarter of float16's largest number: sums on the way must fit as well."""


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """By ONNX Runtime's converter, with the nodes that the data rules out kept back."""
    wide = {
        name
        for name, observed in stats.items()
        if max(abs(observed.low), abs(observed.high)) > _LARGEST
    }
    kept = [node.name for node in model.graph.node if wide & {*node.input, *node.output}]
    converted: onnx.ModelProto = convert_float_to_float16(
        copy_model(model), keep_io_types=True, node_block_list=kept
    )
    return converted
