"""Weights in 8 bits, activations rounded while the model runs, with the range each batch has: no calibration, for LSTMs and transformers."""

from collections.abc import Mapping
from pathlib import Path

import onnx
from onnxruntime.quantization import QuantType, quantize_dynamic

from onnxproof.errors import UsageError
from onnxproof.onnxmodel import large_models
from onnxproof.quantization.calibration.statistics import Statistics
from onnxproof.quantization.float_graph import copy_model
from onnxproof.quantization.insert_qdq import quiet_logging
from onnxproof.system import temporary

ABOUT = "dynamic: int8 weights, activations by the batch"
_INTEGER = {
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantizeLSTM",
    "DynamicQuantizeMatMul",
    "QLinearMatMul",
}


def build(model: onnx.ModelProto, stats: Mapping[str, Statistics]) -> onnx.ModelProto:
    """By ONNX Runtime's dynamic quantizer, without the stale shapes that make it fail."""
    plain = copy_model(model)
    del plain.graph.value_info[:]
    with temporary.Folder() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "dynamic.onnx"
        large_models.save(plain, source)
        with quiet_logging():
            quantize_dynamic(
                source,
                target,
                weight_type=QuantType.QInt8,
                per_channel=True,
                extra_options={"MatMulConstBOnly": True},
            )
        quantized = onnx.load(target)
    if not {node.op_type for node in quantized.graph.node} & _INTEGER:
        raise UsageError(
            "nothing-to-quantize", "the dynamic quantizer found nothing to quantize in this model"
        )
    return quantized
