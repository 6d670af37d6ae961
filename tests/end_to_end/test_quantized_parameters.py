"""A quantized file with one wrong parameter, the whole way: verdict, node, cause and a fix that was verified."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import (  # noqa: F401 quick works by being here
    Fault,
    made,
    mlp,
    quick,
)

import onnxproof
from bench.quantized_kinds import KINDS, Planted
from onnxproof.options import Policy
from onnxproof.quantization.insert_qdq import Plan
from onnxproof.results import Verdict
from onnxproof.results.proof import Proof

FINITE = Policy(domains=())
NARROWED = 0.85
"""Of the served data, what the 16-bit ranges are learned from."""


def prove(module: Any, path: Path, x: Any, **options: Any) -> Proof:
    return onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": x},
        policy=FINITE,
        budget_s=20,
        only=("example", "data-data"),
        **options,
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("weight-axis", "attribute"),
        ("bias-in-other-units", "weights"),
        ("activation-zero-point", "quant-scheme"),
    ],
)
def test_node_and_cause_are_named(kind: str, code: str, tmp_path: Path) -> None:
    fault = Fault(cause=code, module=mlp, shape=(16,))
    module, path, x = made(fault, tmp_path)
    model = onnx.load(path)
    planted: Planted = KINDS[kind](model, np.random.default_rng(5))
    onnx.save(model, path)
    proof = prove(module, path, x)
    names = {n.name or n.output[0] for n in model.graph.node if n.output[0] in planted.guilty}
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert proof.location is not None and proof.location.nodes[0] in names
    # the integer kernel serves right answers in spite of a wrong axis: no case fails, and nothing is proven
    assert proof.causes[0].code == code
    assert proof.causes[0].proven is (kind != "weight-axis")
    assert planted.guilty[0] in proof.causes[0].evidence
    if kind == "weight-axis":
        return
    assert proof.causes[0].fix is not None and proof.causes[0].fix.verdict is Verdict.FAITHFUL


def test_sixteen_bit_ranges_that_clip_are_a_drift_with_their_decibels(tmp_path: Path) -> None:
    """Calibrated on smaller values than are served, the answers keep more than the 25 dB that eight bits are asked for."""
    fault = Fault(
        cause="calibration",
        module=mlp,
        shape=(16,),
        plan=Plan(activations="uint16"),
        calibrate=lambda x: x * NARROWED,
    )
    module, path, x = made(fault, tmp_path)
    proof = prove(module, path, x, explain=False)
    assert proof.quality() is not None and proof.quality() > FINITE.drift_db
    assert proof.verdict is Verdict.DRIFT
    assert "lost to 16-bit ranges that clip" in proof.sentence()


def test_sixteen_bits_calibrated_on_what_is_served_are_faithful(tmp_path: Path) -> None:
    fault = Fault(cause="", module=mlp, shape=(16,), plan=Plan(activations="uint16"))
    module, path, x = made(fault, tmp_path)
    proof = prove(module, path, x, explain=False)
    assert proof.verdict is Verdict.FAITHFUL
    assert "16-bit" not in proof.sentence()
