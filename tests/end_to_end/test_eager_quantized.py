"""Eager PyTorch quantization, the whole way: the quantized module against its file, and both against float."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import eager_quantized
from support.quantized_faults import quick  # noqa: F401 quick works by being here

import onnxproof
from onnxproof.options import Policy
from onnxproof.results import NoiseKind, Verdict
from onnxproof.results.proof import Proof

FINITE = Policy(domains=())
SERVED = eager_quantized.ordinary(2, 10.0)


def prove(module: Any, path: Path, data: torch.Tensor) -> Proof:
    return onnxproof.verify(
        module,
        path,
        (data[:4],),
        dynamic_shapes=({0: "batch"},),
        data={"x": data.numpy()},
        policy=FINITE,
        budget_s=20,
        only=("example", "data-data"),
    )


@pytest.fixture(scope="module")
def small_ranges(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """The float module, the quantized one and its file, calibrated on data of a tenth of what is served."""
    module, example = eager_quantized.build()
    data = eager_quantized.ordinary(1)
    quantized = eager_quantized.convert(module, lambda prepared: prepared(data))
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    return module, quantized, eager_quantized.write(quantized, example, path)


def test_calibrated_on_a_tenth_of_what_is_served(small_ranges: tuple[Any, Any, Path]) -> None:
    module, _, path = small_ranges
    proof = prove(module, path, SERVED)
    assert proof.verdict is Verdict.DIVERGED
    cause = proof.causes[0]
    assert (cause.code, cause.proven) == ("calibration", True)
    assert cause.fix is not None and cause.fix.verdict is Verdict.FAITHFUL
    assert proof.untried == ()


def test_clipping_that_the_quantized_module_does_too_is_no_fault_of_the_file(
    small_ranges: tuple[Any, Any, Path],
) -> None:
    _, quantized, path = small_ranges
    proof = prove(quantized, path, SERVED)
    assert {gap.noise_kind for gap in proof.gaps} == {NoiseKind.TWIN}
    assert proof.verdict is Verdict.FAITHFUL, proof.sentence()
    assert "clipped" not in proof.sentence()
    (finding,) = [finding for finding in proof.findings if finding.code == "inputs-clipped"]
    assert "the quantized reference clips them, too" in finding.what


def test_a_file_that_is_not_the_quantized_modules_is_a_fault(
    small_ranges: tuple[Any, Any, Path], tmp_path: Path
) -> None:
    """Its ranges were learned from other data than the module's."""
    module, quantized, _ = small_ranges
    other = eager_quantized.convert(module, lambda prepared: prepared(SERVED))
    path = eager_quantized.write(other, SERVED[:4], tmp_path / "other.onnx")
    proof = prove(quantized, path, SERVED)
    assert proof.verdict is Verdict.DIVERGED
    assert np.isfinite(proof.quality() or np.nan)
