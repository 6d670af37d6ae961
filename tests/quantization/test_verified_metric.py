"""The task's metric for a verification: a drop fails where the samples tell it from chance, and nowhere else."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import onnxproof
from onnxproof.quantization.paired_metric import compare_paired
from onnxproof.quantization.verified_metric import describe, samples_to_tell

X = np.random.default_rng(1).normal(size=(400, 3)).astype(np.float32)
TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 3] x) => (float[n, 3] y) { y = Mul(x, factor) }"""


def accuracy(predict: Any) -> Any:
    return predict(X)[0].argmax(-1) == X.argmax(-1)


@pytest.mark.parametrize(
    ("factor", "code", "passed"), [([1, 1, 1], "metric", True), ([1, 1, 0.2], "metric-drop", False)]
)
def test_a_drop_that_is_no_chance_fails(
    tmp_path: Path, factor: list[float], code: str, passed: bool
) -> None:
    model = parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(factor), "factor"))
    onnx.save(model, tmp_path / "m.onnx")
    proof = onnxproof.verify(
        lambda x: x * np.float32(1),
        tmp_path / "m.onnx",
        {"x": X[:4]},
        budget_s=3,
        explain=False,
        evaluate=accuracy,
    )
    told = next(finding for finding in proof.findings if finding.code.startswith("metric"))
    assert (told.code, proof.passed) == (code, passed)
    assert "on 400 samples" in told.what


def test_few_samples_tell_nothing_and_say_how_many_would() -> None:
    before = np.ones(40)
    after = before.copy()
    after[:2] = 0
    metric = compare_paired(before, after)
    finding = describe(metric, "ort")
    needed = samples_to_tell(metric)
    assert finding.code == "metric" and not finding.fails
    assert needed is not None and needed > 40
    assert f"about {needed:,} samples" in finding.help
    more = compare_paired(np.ones(4 * needed), np.repeat(after, 4 * needed // 40 + 1)[: 4 * needed])
    assert more.low > 0


def test_an_evaluator_that_is_no_function_is_an_error(tmp_path: Path) -> None:
    model = parser.parse_model(TEXT)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "factor"))
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(onnxproof.OnnxproofError, match="bad-evaluator"):
        onnxproof.verify(
            lambda x: x * np.float32(1),
            tmp_path / "m.onnx",
            {"x": X[:4]},
            budget_s=2,
            explain=False,
            evaluate=3,
        )
