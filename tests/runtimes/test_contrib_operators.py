"""Operators of `com.microsoft`: recognised as quantized by name, and the same in our evaluator as in ONNX Runtime's kernels."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from onnxproof.onnxmodel import onnx_file
from onnxproof.runtimes import reference
from onnxproof.runtimes.evaluator import contrib

RNG = np.random.default_rng(5)
Array = np.ndarray[Any, Any]


def _u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def _s8(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def _f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def _scale(value: float) -> Array:
    return np.array(value, np.float32)


S1, S2, S3 = _scale(0.02), _scale(0.013), _scale(0.21)
Z1, Z2, Z3 = np.array(120, np.uint8), np.array(3, np.int8), np.array(131, np.uint8)
COLUMNS = np.abs(_f(5)) * 0.01 + 0.001
NODES: dict[str, tuple[str, list[Array | None], dict[str, Any]]] = {
    "dynamic": ("DynamicQuantizeMatMul", [_f(2, 4, 8), _s8(8, 5), S2, Z2, _f(5)], {}),
    "dynamic, one scale for each column": (
        "DynamicQuantizeMatMul",
        [_f(4, 8), _s8(8, 5), COLUMNS, np.zeros(5, np.int8)],
        {},
    ),
    "to float": ("MatMulIntegerToFloat", [_u8(4, 8), _s8(8, 5), S1, S2, Z1, Z2, _f(5)], {}),
    "to float, one scale for each column": (
        "MatMulIntegerToFloat",
        [_u8(4, 8), _s8(8, 5), S1, COLUMNS],
        {},
    ),
    "gemm": (
        "QGemm",
        [_u8(4, 8), S1, Z1, _s8(8, 5), S2, Z2, RNG.integers(-900, 900, 5).astype(np.int32), S3, Z3],
        {},
    ),
    "gemm, transposed": (
        "QGemm",
        [_u8(4, 8), S1, Z1, _s8(5, 8), COLUMNS, np.zeros(5, np.int8), None, S3, Z3],
        {"transB": 1},
    ),
    "gemm to float": ("QGemm", [_u8(4, 8), S1, Z1, _s8(8, 5), S2, Z2], {}),
    "add": ("QLinearAdd", [_u8(3, 4), S1, Z1, _u8(3, 4), S2, Z3, S3, Z3], {}),
    "mul": ("QLinearMul", [_u8(3, 4), S1, Z1, _u8(4), S2, Z3, S2, Z1], {}),
    "sigmoid": ("QLinearSigmoid", [_u8(3, 4), S1, Z1, _scale(1 / 256), np.array(0, np.uint8)], {}),
    "leaky": ("QLinearLeakyRelu", [_u8(3, 4), S1, Z1, S2, Z3], {"alpha": 0.2}),
    "softmax": (
        "QLinearSoftmax",
        [_u8(3, 4, 6), S1, Z1, _scale(1 / 256), np.array(0, np.uint8)],
        {"axis": 1, "opset": 13},
    ),
    "softmax of old": (
        "QLinearSoftmax",
        [_u8(3, 4, 6), S1, Z1, _scale(1 / 256), np.array(0, np.uint8)],
        {"axis": 1, "opset": 11},
    ),
    "pool": (
        "QLinearAveragePool",
        [_u8(2, 3, 6, 6), S1, Z1, S1, Z3],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "pool, channels last": (
        "QLinearAveragePool",
        [_u8(2, 6, 6, 3), S1, Z1, _scale(0.019), Z3],
        {"kernel_shape": [2, 2], "channels_last": 1},
    ),
    "global pool": ("QLinearGlobalAveragePool", [_u8(2, 3, 6, 6), S1, Z1, S1, Z3], {}),
    "global pool, channels last": (
        "QLinearGlobalAveragePool",
        [_u8(2, 6, 6, 3), S1, Z1, S1, Z3],
        {"channels_last": 1},
    ),
    "concat": ("QLinearConcat", [S3, Z3, _u8(2, 3), S1, Z1, _u8(2, 4), S2, Z3], {"axis": 1}),
    "conv, channels last": (
        "QLinearConv",
        [_u8(1, 6, 6, 4), S1, Z1, _s8(4, 4, 3, 3), S2, Z2, S3, Z3],
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
    ),
    "quantize": ("QuantizeLinear", [_f(3, 4), S1, Z1], {}),
    "dequantize": ("DequantizeLinear", [_u8(3, 4), S1, Z1], {}),
    "4 bits": (
        "MatMulNBits",
        [_f(3, 40), _u8(6, 3, 8), np.abs(_f(18)) * 0.1],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "4 bits with zeros": (
        "MatMulNBits",
        [_f(3, 40), _u8(6, 3, 8), np.abs(_f(18)) * 0.1, _u8(12)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "8 bits with zeros": (
        "MatMulNBits",
        [_f(3, 32), _u8(6, 2, 16), np.abs(_f(12)) * 0.01, _u8(12)],
        {"K": 32, "N": 6, "bits": 8, "block_size": 16},
    ),
    "attention": (
        "QAttention",
        [_u8(2, 5, 8), _s8(8, 24), _f(24), S1, S2 * 0.3, None, Z1, Z2],
        {"num_heads": 2},
    ),
    "attention, causal": (
        "QAttention",
        [_u8(2, 5, 8), _s8(8, 24), _f(24), S1, S2 * 0.3, None, Z1, Z2],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "attention, lengths": (
        "QAttention",
        [_u8(2, 5, 8), _s8(8, 24), _f(24), S1, S2 * 0.3, np.array([5, 2], np.int32), Z1, Z2],
        {"num_heads": 4},
    ),
    "attention, mask": (
        "QAttention",
        [_u8(2, 5, 8), _s8(8, 24), _f(24), S1, S2 * 0.3, np.tri(5, dtype=np.int32)[1:3], Z1, Z2],
        {"num_heads": 4},
    ),
    "fused": ("FusedMatMul", [_f(2, 4, 3), _f(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.3}),
    "fused, batch in the middle": (
        "FusedMatMul",
        [_f(4, 2, 3, 6), _f(2, 3, 6, 5)],
        {"transBatchA": 1},
    ),
    "fused, both in the middle": (
        "FusedMatMul",
        [_f(4, 2, 6), _f(5, 2, 6)],
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
    ),
    "skip": (
        "SkipLayerNormalization",
        [_f(2, 4, 8), _f(2, 4, 8), _f(8), _f(8), _f(8)],
        {"epsilon": 1e-3},
    ),
    "skip without a mean": (
        "SkipSimplifiedLayerNormalization",
        [_f(2, 4, 8), _f(2, 4, 8), _f(8), _f(8)],
        {"epsilon": 1e-3},
    ),
    "gelu": ("Gelu", [_f(3, 40)], {}),
    "gelu with a bias": ("BiasGelu", [_f(3, 40), _f(40)], {}),
    "fast gelu": ("FastGelu", [_f(3, 40), _f(40)], {}),
    "quick gelu": ("QuickGelu", [_f(3, 40)], {"alpha": 1.3}),
}


def _model(
    op_type: str, inputs: list[Array | None], attributes: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The node with its data as an input and all else as weights."""
    first = next(place for place, value in enumerate(inputs) if value is not None and value.ndim)
    names = [f"i{place}" if value is not None else "" for place, value in enumerate(inputs)]
    weights = [
        onnx.numpy_helper.from_array(np.asarray(value), names[place])
        for place, value in enumerate(inputs)
        if value is not None and place != first
    ]
    data = inputs[first]
    assert data is not None
    port = helper.make_tensor_value_info(
        names[first], helper.np_dtype_to_tensor_dtype(data.dtype), data.shape
    )
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], domain="com.microsoft", **attributes)],
        "g",
        [port],
        [onnx.ValueInfoProto(name="y")],
        weights,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), {names[first]: data}


@pytest.mark.parametrize("name", NODES)
def test_an_operator_says_what_onnxruntimes_kernel_says(name: str) -> None:
    model, fed = _model(*NODES[name])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = session.run(None, fed)
    assert np.unique(wanted).size > 3, "an answer that says something"
    for option in ("", "float64"):
        (found,) = reference.open(model.SerializeToString(), option).run(fed)
        assert found is not None
        assert found.shape == wanted.shape
        if wanted.dtype.kind in "iu":
            apart = np.abs(found.astype(int) - wanted.astype(int))
            assert found.dtype == wanted.dtype
            assert apart.max() <= 1, "one step, where float32 rounds the scales"
            assert apart.mean() < 0.1
        else:
            np.testing.assert_allclose(
                found,
                wanted,
                rtol=2e-3 if NODES[name][0] == "DynamicQuantizeMatMul" else 1e-4,
                atol=2e-4,
            )


def test_every_operator_of_ours_was_compared() -> None:
    assert {op_type for op_type, _, _ in NODES.values()} == set(contrib.OPERATORS)


QUANTIZED = [
    "QAttention",
    "QEmbedLayerNormalization",
    "QGemm",
    "QLinearAdd",
    "QLinearConv",
    "QLinearSoftmax",
    "QLinearWhere",
    "QMoE",
    "QOrderedMatMul",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
    "MatMulIntegerToFloat",
    "MatMulNBits",
    "MatMulBnb4",
    "MatMulFpQ4",
    "GatherBlockQuantized",
    "QuantizeLinear",
    "DequantizeLinear",
    "DequantizeBFP",
    "GemmFloat8",
    "MulInteger",
]
FLOAT = [
    "QuickGelu",
    "Gelu",
    "FusedMatMul",
    "Attention",
    "SkipLayerNormalization",
    "MultiHeadAttention",
    "MoE",
    "FusedConv",
    "BiasGelu",
    "Range",
    "Unique",
]


@pytest.mark.parametrize(
    ("op_type", "domain", "quantized"),
    [
        *((name, "com.microsoft", True) for name in QUANTIZED),
        *((name, "com.microsoft", False) for name in FLOAT),
        ("QKProduct", "local", False),
        ("QLinearMatMul", "", True),
        ("MatMul", "", False),
    ],
)
def test_a_file_is_known_as_quantized_by_its_operators(
    tmp_path: Path, op_type: str, domain: str, quantized: bool
) -> None:
    ports = [helper.make_tensor_value_info(name, 1, [2]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], domain=domain)], "g", ports[:1], ports[1:]
    )
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert onnx_file.read(tmp_path / "m.onnx").quantized is quantized
