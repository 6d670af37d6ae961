"""8-bit weights alone: a quarter of the size, float arithmetic, no calibration to get wrong."""

from collections.abc import Mapping

import onnx

from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import Index
from onnxproof.quantization.insert_qdq import HEAVY, Plan, choose, insert
from onnxproof.quantization.qdq import find_pairs
from onnxproof.quantization.qdq_edit import without_rounding

ABOUT = "int8 weights only, per channel"


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """Quantize as ever, then take the rounding of activations out."""
    # no range is used: only weights stay rounded
    ranges = dict.fromkeys(Index(model).float_values(), (-1.0, 1.0))
    quantized = insert(model, ranges, Plan(nodes=choose(model, HEAVY))).model
    return without_rounding(quantized, [pair.value for pair in find_pairs(quantized)])
