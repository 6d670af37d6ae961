"""Operators of `com.microsoft`: recognised as quantized by name, and the same in our evaluator as in ONNX Runtime's kernels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from bench.evaluator.compare import compare, draw_configuration, run_kernel
from bench.evaluator.configurations import CONFIGURATIONS
from onnxproof.onnxmodel import onnx_file
from onnxproof.runtimes.evaluator import contrib

COUNT = 4
"""Configurations of each operator; `python -m bench.evaluator` runs 200."""


@pytest.mark.parametrize("op_type", sorted(CONFIGURATIONS))
def test_an_operator_says_what_onnxruntimes_kernel_says(op_type: str) -> None:
    compared = [compare(op_type, draw_configuration(op_type, 5, place)) for place in range(COUNT)]
    assert [c.problem or c.refused for c in compared] == [""] * COUNT


def test_every_operator_of_ours_was_compared() -> None:
    assert set(CONFIGURATIONS) == set(contrib.OPERATORS)
    assert len(CONFIGURATIONS) >= 45


@pytest.mark.parametrize(
    ("op_type", "attribute", "wrong"),
    [
        ("Attention", "unidirectional", None),
        ("SkipLayerNormalization", "epsilon", 0.5),
        ("RotaryEmbedding", "interleaved", None),
        ("GroupQueryAttention", "scale", 2.0),
        ("MatMulBnb4", "quant_type", None),
        ("MoE", "normalize_routing_weights", None),
    ],
)
def test_the_comparison_sees_a_wrong_attribute(op_type: str, attribute: str, wrong: Any) -> None:
    """The kernel gets another value of one attribute than our evaluator: some configuration must tell."""
    problems = []
    for place in range(12):
        drawn = draw_configuration(op_type, 5, place)
        value = 1 - drawn.attributes[attribute] if wrong is None else wrong
        if drawn.attributes.get(attribute) != value:
            changed = replace(drawn, attributes={**drawn.attributes, attribute: value})
            problems.append(
                compare(op_type, replace(drawn, expected=run_kernel(op_type, changed))).problem
            )
    assert any(problems)


def test_routing_weights_that_are_not_to_be_normalized_are_told_from_the_kernels() -> None:
    """ONNX Runtime normalizes them all the same (docs/findings/qmoe_normalizes.md): the evaluator does as the attribute says."""
    problems = []
    for place in range(6):
        drawn = draw_configuration("QMoE", 5, place)
        assert not compare("QMoE", drawn).problem
        attributes = {**drawn.attributes, "normalize_routing_weights": 0}
        problems.append(compare("QMoE", replace(drawn, attributes=attributes)).problem)
    assert any(problems)


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
