"""A quantized candidate is asked two questions: does the runtime do what the graph says, does the graph say what the reference says."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import FAULTS, Fault, convnet, made, mlp
from torch import nn

import onnxproof
from onnxproof.options import Policy
from onnxproof.results import Gap, NoiseKind, Status, Verdict, judging
from onnxproof.runtimes import Session
from onnxproof.testing import fake_backend

FINITE = Policy(domains=())
HEALTHY = {
    "mlp": Fault(cause="", module=mlp, shape=(16,)),
    "conv": Fault(cause="", module=convnet, shape=(3, 8, 8)),
}


def prove(module: nn.Module, path: Path, x: Any, **options: Any) -> onnxproof.Proof:
    torch.set_num_threads(1)
    return onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        **{"data": {"x": x}, "policy": FINITE, "budget_s": 5, **options},
    )


@pytest.mark.parametrize("name", list(HEALTHY))
def test_a_healthy_quantized_model_is_faithful_with_or_without_data(
    name: str, tmp_path: Path
) -> None:
    module, path, x = made(HEALTHY[name], tmp_path)
    proof = prove(module, path, x)
    assert (
        proof.verdict is Verdict.FAITHFUL and proof.quality() is not None and proof.quality() > 30
    )
    assert {gap.noise_kind for gap in proof.gaps if gap.compared} == {NoiseKind.SIMULATED}
    assert "is a sound quantization of" in proof.sentence()
    assert prove(module, path, x, data=None).verdict is Verdict.FAITHFUL


def wrong_requantization(session: Session, inputs: Mapping[str, Any]) -> list[Any]:
    """A kernel that is off by a twentieth of its output's spread: within what int8 costs elsewhere, and not what this graph says."""
    return [
        array + np.float32(0.05) * array.std() if array is not None else None
        for array in session.run(inputs)
    ]


def test_a_runtime_that_leaves_its_graph_is_caught_though_the_answers_are_fair(
    tmp_path: Path,
) -> None:
    module, path, x = made(HEALTHY["conv"], tmp_path)
    with fake_backend("off", wrong_requantization):
        proof = prove(module, path, x, backends=("off",), explain=False)
    assert (
        proof.quality() is not None and proof.quality() > Policy().drift_db
    )  # by its answers alone it would be faithful
    assert (
        proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
        and max(gap.noise_ratio for gap in proof.gaps if gap.group == "data") > 2
    )


def test_quality_is_judged_on_data_and_not_on_what_was_made_up(tmp_path: Path) -> None:
    module, path, x = made(FAULTS["served-ten-times-larger"], tmp_path)
    assert prove(module, path, x, explain=False).verdict is Verdict.DIVERGED
    calm = x / 10  # what it was calibrated on; made-up cases reach beyond its ranges
    assert prove(module, path, calm, explain=False).verdict is Verdict.FAITHFUL


def test_clipped_inputs_are_a_drift(tmp_path: Path) -> None:
    fault = Fault(cause="", module=mlp, shape=(16,), calibrate=lambda x: x * 0.6)
    module, path, x = made(fault, tmp_path)
    proof = prove(module, path, x, explain=False)
    shares = [gap.clipped for gap in proof.gaps if gap.group == "data"]
    assert shares and all(share is not None and share > 1e-2 for share in shares)
    assert proof.verdict is Verdict.DRIFT


def test_a_fake_quantized_module_is_held_to_its_own_rounding(tmp_path: Path) -> None:
    class Fake(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(torch.fake_quantize_per_tensor_affine(x, 0.05, 0, -128, 127))

    torch.manual_seed(0)
    module = Fake().eval()
    x = torch.randn(4, 16)
    path = tmp_path / "fake.onnx"
    torch.onnx.export(module, (x,), str(path), dynamo=False, opset_version=17, input_names=["x"])
    proof = onnxproof.verify(module, path, (x,), policy=FINITE, budget_s=5)
    assert proof.verdict is Verdict.FAITHFUL and not any(
        gap.noise_kind is NoiseKind.SIMULATED for gap in proof.gaps
    )
    model = onnx.load(path)
    for tensor in (
        *model.graph.initializer,
        *(n.attribute[0].t for n in model.graph.node if n.op_type == "Constant"),
    ):
        if np.allclose(onnx.numpy_helper.to_array(tensor), 0.05):
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.asarray(0.06, np.float32), tensor.name))
    onnx.save(model, path)
    assert (
        onnxproof.verify(module, path, (x,), policy=FINITE, budget_s=5, explain=False).verdict
        is Verdict.DIVERGED
    )  # 0.06 for 0.05 is no quantization of it


def gap(level: float, **other: Any) -> Gap:
    return Gap(
        **{
            "case": "data-0",
            "group": "data",
            "backend": "ort",
            "output": "y",
            "status": Status.COMPARED,
            "compared": 10,
            "scale": 1.0,
            "noise": 1.0,
            "noise_ratio": 0.1,
            "noise_kind": NoiseKind.SIMULATED,
            "sqnr_db": level,
            "ordinary": True,
            **other,
        }
    )


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([gap(30.0)], Verdict.FAITHFUL),
        ([gap(24.0)], Verdict.DRIFT),
        ([gap(14.0)], Verdict.DIVERGED),
        ([gap(30.0, clipped=0.02)], Verdict.DRIFT),
        ([gap(10.0, ordinary=False)], Verdict.FAITHFUL),
        ([gap(10.0, group="shapes", case="all-one")], Verdict.FAITHFUL),
        ([gap(10.0, group="ordinary", case="example")], Verdict.DIVERGED),
        (
            [gap(10.0, group="ordinary", case="example"), gap(30.0)],
            Verdict.FAITHFUL,
        ),  # data says more than the example
        (
            [gap(20.0, scale=0.01), gap(35.0)],
            Verdict.FAITHFUL,
        ),  # energies are pooled: a quiet sample does not decide
        ([gap(30.0, noise_ratio=3.0)], Verdict.DRIFT),
        ([gap(30.0, noise_ratio=30.0)], Verdict.DIVERGED),
        ([gap(18.0, rounding_db=19.0)], Verdict.FAITHFUL),  # what few bits cost
        ([gap(18.0, rounding_db=24.0)], Verdict.DRIFT),  # more than they cost
        ([gap(12.0, rounding_db=13.0)], Verdict.DRIFT),  # they cost too much to say nothing
        ([gap(8.0, rounding_db=13.0)], Verdict.DIVERGED),
        ([gap(18.0, rounding_db=19.0), gap(18.0)], Verdict.DRIFT),  # half of it was not asked
        ([gap(18.0, rounding_db=19.0, clipped=0.02)], Verdict.DRIFT),
    ],
)
def test_the_worse_of_both_questions_decides(gaps: list[Gap], verdict: Verdict) -> None:
    assert judging.judge(gaps, Policy()) is verdict


def test_a_stored_proof_is_judged_again_by_other_thresholds(tmp_path: Path) -> None:
    module, path, x = made(HEALTHY["mlp"], tmp_path)
    proof = prove(module, path, x, explain=False)
    assert proof.judged(replace(proof.policy, drift_db=60.0)).verdict is Verdict.DRIFT
    assert (
        proof.judged(replace(proof.policy, drift_db=60.0, diverged_db=55.0)).verdict
        is Verdict.DIVERGED
    )
