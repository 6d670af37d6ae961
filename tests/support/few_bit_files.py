"""A small language model in 4 bits by ONNX Runtime's own quantizers, and one layer of it damaged."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from support.language_model import language_model, token_ids

from onnxproof.quantization.block_parameters import BlockRepair, apply_repairs
from onnxproof.verification import block_reading
from onnxproof.verification.block_weights import BlockWeight


def _options(tool: str) -> dict[str, Any]:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import (
        GPTQWeightOnlyQuantConfig,
        HQQWeightOnlyQuantConfig,
    )

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._batches = iter([{"input_ids": token_ids(16, seed=k)} for k in range(4)])

        def get_next(self) -> Mapping[str, Any] | None:
            return next(self._batches, None)

    both = ("MatMul", "Gather")
    options: dict[str, dict[str, Any]] = {
        "default": {"block_size": 32},
        "eight bits": {"block_size": 32, "bits": 8},
        "symmetric tables": {
            "block_size": 16,
            "is_symmetric": True,
            "op_types_to_quantize": both,
        },
        "tables": {"block_size": 32, "op_types_to_quantize": both},
        "hqq": {"algo_config": HQQWeightOnlyQuantConfig(block_size=16)},
        "gptq": {
            "algo_config": GPTQWeightOnlyQuantConfig(
                calibration_data_reader=Reader(), block_size=16
            ),
            "block_size": 16,
        },
        "pairs": {"block_size": 16, "quant_format": QuantFormat.QDQ},
    }
    return options[tool]


TOOLS = ("default", "eight bits", "symmetric tables", "tables", "hqq", "gptq", "pairs")


def quantized_by(tool: str, model: onnx.ModelProto | None = None) -> onnx.ModelProto:
    """The file of one of ONNX Runtime's quantizers."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        quantizer = MatMulNBitsQuantizer(model or language_model(), **_options(tool))
        quantizer.process()
    finally:
        logging.disable(level)
    made: onnx.ModelProto = quantizer.model.model
    return made


def damaged(
    model: onnx.ModelProto, layer: str, damage: Callable[[BlockWeight], BlockWeight]
) -> onnx.ModelProto:
    """The file with another weight in the layer whose node's name begins so."""
    (weight,) = [each for each in block_reading.find(model) if each.name.startswith(layer)]
    return apply_repairs(model, [BlockRepair(weight=damage(weight), what="")])


def row_times_three(weight: BlockWeight) -> BlockWeight:
    """Row 5."""
    scales = weight.scales.copy()
    scales[5] *= 3
    return replace(weight, scales=scales)


def zero_points_up(weight: BlockWeight) -> BlockWeight:
    """All of them by one."""
    assert weight.zeros is not None
    return replace(weight, zeros=np.clip(weight.zeros + 1, 0, weight.top))


def block_scaled(weight: BlockWeight) -> BlockWeight:
    """The scales of block 1 of every row."""
    scales = weight.scales.copy()
    scales[:, 1] *= 1.5
    return replace(weight, scales=scales)


def coarse_integers(weight: BlockWeight) -> BlockWeight:
    """As if it had two bits: only every fourth integer."""
    integers = np.clip(np.rint((weight.integers - 8) / 4) * 4 + 8, 0, 15).astype(np.uint8)
    packed = block_reading.pack_rows(integers, weight.packing.bits)
    return replace(weight, packed=packed.reshape(weight.packed.shape))
