"""What a half device would lose is told with the node, although the CPU answers rightly; nothing is told of the twins."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.half_models import PLANTED
from torch import nn

import onnxproof
from onnxproof.errors import UsageError
from onnxproof.reference import subject
from onnxproof.results import Case, Finding, Verdict
from onnxproof.runtimes import reference
from onnxproof.verification import target_precision
from onnxproof.verification.evidence import Request
from onnxproof.verification.target_precision import relative_error


def _examine(path: Path, x: Any) -> list[Finding]:
    case = Case(name="example", group="ordinary", about="", inputs={"x": x})
    request = Request(subject=subject.load(str(path)), path=path, target="fp16")
    return target_precision.examine(
        request, "float16", [case], affords=lambda: True, own_precision=True
    )


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_half_device_loses_is_told_with_the_node(name: str, tmp_path: Path) -> None:
    planted = PLANTED[name]
    path = tmp_path / "half.onnx"
    onnx.save(planted.build(), path)
    truth = reference.open(path, "float64").run({"x": planted.x})[0]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert truth is not None
    assert relative_error(session.run(None, {"x": planted.x})[0], truth) < 0.02, "the CPU hides it"
    (found,) = _examine(path, planted.x)
    assert f"`{planted.guilty}`" in found.what
    assert found.code.startswith("target-") and found.counts


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_told_where_the_sensitive_nodes_are_in_float32(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "twin.onnx"
    onnx.save(PLANTED[name].build(twin=True), path)
    assert _examine(path, PLANTED[name].x) == []


def test_an_overflow_is_told_apart_from_what_vanishes(tmp_path: Path) -> None:
    told = {}
    for name in ("norm of large vectors", "squares vanish", "variance of large values"):
        path = tmp_path / "half.onnx"
        onnx.save(PLANTED[name].build(), path)
        told[name] = _examine(path, PLANTED[name].x)[0]
    assert "overflows" in told["norm of large vectors"].what
    assert told["norm of large vectors"].code == "target-overflow"
    assert "vanishes" in told["squares vanish"].what
    assert "loses its digits" in told["variance of large values"].what


class Norm(nn.Module):
    """A norm that overflows in half precision from 256 on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x / (x * x).mean(-1, keepdim=True).sqrt())


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Norm, torch.Tensor, Path]:
    torch.manual_seed(1)
    module, x = Norm().eval(), torch.randn(3, 8) * 500
    path = tmp_path_factory.mktemp("target") / "norm.onnx"
    torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)
    return module, x, path


@pytest.mark.parametrize(
    ("target", "verdict"),
    [("", Verdict.FAITHFUL), ("fp16", Verdict.DIVERGED), ("bf16", Verdict.FAITHFUL)],
)
def test_a_named_target_decides_the_verdict(
    exported: tuple[Norm, torch.Tensor, Path], target: str, verdict: Verdict
) -> None:
    module, x, path = exported
    proof = onnxproof.verify(module, path, (x,), target=target, budget_s=60)
    assert proof.verdict is verdict
    found = [finding for finding in proof.findings if finding.code == "target-overflow"]
    if target == "fp16":
        assert "(Mul)" in found[0].what and "test_target_precision.py:" in found[0].what
        assert "keep" in found[0].help
    else:
        assert not found


def test_a_file_in_half_is_asked_by_itself(
    exported: tuple[Norm, torch.Tensor, Path], tmp_path: Path
) -> None:
    """The module is in float32 and the file was converted: no more than DRIFT may be said of it."""
    from onnxruntime.transformers.float16 import convert_float_to_float16

    module, x, path = exported
    converted = convert_float_to_float16(onnx.load(path), keep_io_types=True)
    onnx.save(converted, tmp_path / "half.onnx")
    proof = onnxproof.verify(module, tmp_path / "half.onnx", (x,), budget_s=60)
    assert proof.verdict is not Verdict.FAITHFUL
    assert any("(Mul)" in finding.what for finding in proof.findings), proof.findings


def test_a_target_that_nobody_computes_like_is_refused(
    exported: tuple[Norm, torch.Tensor, Path],
) -> None:
    module, x, path = exported
    with pytest.raises(UsageError, match="`fp12` is not a precision of a device"):
        onnxproof.verify(module, path, (x,), target="fp12")


def test_sums_in_half_lose_what_sums_in_float32_keep() -> None:
    """4096 ones add up to 2048 in half: from there on one more is rounded away."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float16[4096] x) => (float16 y)'
        "{ axes = Constant<value_ints = [0]>() y = ReduceSum<keepdims = 0>(x, axes) }"
    )
    ones = np.ones(4096, np.float16)
    sums = {
        option: float(
            np.asarray(reference.open(model.SerializeToString(), option).run({"x": ones})[0])
        )
        for option in ("float16", "float16+half-sums")
    }
    assert sums == {"float16": 4096.0, "float16+half-sums": 2048.0}


def test_denormals_are_flushed_by_choice_and_tf32_rounds_products_alone() -> None:
    product = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 1] x) => (float[1, 1] y, float[1, 1] z)'
        "{ y = MatMul(x, x) z = Add(x, x) }"
    ).SerializeToString()

    def run(option: str, value: float) -> list[float]:
        answers = reference.open(product, option).run({"x": np.full((1, 1), value, np.float32)})
        return [float(np.asarray(answer).item()) for answer in answers]

    assert run("float16", 2.0**-16)[1] == 2.0**-15
    assert run("float16+flush", 2.0**-16)[1] == 0.0
    fine = 1 + 2.0**-12
    assert run("tf32", fine) == [1.0, 2 * fine]
    assert run("bfloat16", 300.0) == [90112.0, 600.0]
    with pytest.raises(UsageError, match="is not a precision"):
        reference.open(product, "float16+sometimes")
