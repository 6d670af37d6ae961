"""Quantized models that went wrong in a known way: each is named with the right cause, proven, and cured by the remedy that is offered."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from support.quantized_faults import FAULTS, made, quick  # noqa: F401 quick works by being here

import onnxproof
from onnxproof.options import Policy
from onnxproof.results import Stage, Verdict
from onnxproof.results.proof import Proof

FINITE = Policy(domains=())


@cache
def examined(name: str, folder: Path) -> Proof:
    module, path, x = made(FAULTS[name], folder)
    return onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": x},
        policy=FINITE,
        budget_s=20,
        only=("example", "data-data"),
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory: Any) -> Any:
    return {name: tmp_path_factory.mktemp(name) for name in FAULTS}


@pytest.mark.parametrize("name", list(FAULTS))
def test_the_cause_is_named_proven_and_cured(name: str, folders: Any) -> None:
    proof = examined(name, folders[name])
    assert proof.verdict in (Verdict.DRIFT, Verdict.DIVERGED)
    assert proof.causes and proof.causes[0].code == FAULTS[name].cause, [
        (c.code, c.proven, c.evidence) for c in proof.causes
    ]
    assert proof.causes[0].proven
    fix = proof.causes[0].fix
    assert fix is not None and fix.verdict is Verdict.FAITHFUL


@pytest.mark.parametrize("name", list(FAULTS))
def test_the_waterfall_adds_up(name: str, folders: Any) -> None:
    steps = examined(name, folders[name]).waterfall
    assert sum(step.share for step in steps) == pytest.approx(1.0, abs=1e-6)
    assert steps[-1].code == "rest" and steps[-1].share < 0.02  # nothing is left unexplained


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("served-ten-times-larger", "calibration"),
        ("channels-imbalanced", "channel-imbalance"),
        ("rare-spikes", "outlier"),
        ("norm-not-folded", "unfused"),
        ("skewed-and-symmetric", "quant-scheme"),
    ],
)
def test_the_largest_part_of_the_waterfall_is_the_cause(name: str, code: str, folders: Any) -> None:
    assert max(examined(name, folders[name]).waterfall, key=lambda step: step.share).code == code


def test_the_rounding_that_costs_most_is_located(folders: Any) -> None:
    where = examined("channels-imbalanced", folders["channels-imbalanced"]).location
    assert where is not None and where.stage is Stage.GRAPH
    assert where.nodes[0] == "relu_QuantizeLinear" and "gain" in where.evidence


def test_calibration_data_of_another_scale_is_told_apart(
    folders: Any, tmp_path: Path, capsys: Any
) -> None:
    from onnxproof.cli import main

    _, path, x = made(FAULTS["calibrated-on-bytes"], tmp_path)
    np.savez(tmp_path / "data.npz", x=x)
    np.savez(tmp_path / "calibration.npz", x=x * 255)
    code = main(
        [
            "explain",
            str(tmp_path / "float.onnx"),
            str(path),
            "--data",
            str(tmp_path / "data.npz"),
            "--calibration",
            str(tmp_path / "calibration.npz"),
            "--budget",
            "5",
            "--domain",
            "finite",
        ]
    )
    told = " ".join(capsys.readouterr().out.split())
    assert code == 1
    assert (
        "proven cause calibration" in told
        and "looks 255 times larger than what is served: was normalisation left out" in told
    )
    assert "where the error comes from" in told and "ranges from other data" in told


def saturating(model: Path) -> Any:
    """What a CPU without VNNI computes for Gemm: pairs of products are cut at 16 bits."""
    from onnxproof.runtimes import reference

    session = reference.open(model)
    loaded = onnx.load(model)
    makers = {node.output[0]: node for node in loaded.graph.node}
    known = {t.name: onnx.numpy_helper.to_array(t) for t in loaded.graph.initializer}
    kept: dict[str, np.ndarray[Any, Any]] = {}

    def observe(node: onnx.NodeProto, found: Any) -> Any:
        if node.op_type == "QuantizeLinear":
            kept[node.output[0]] = found[0]
        if node.op_type != "Gemm":
            return found
        x, w = makers[node.input[0]], makers[node.input[1]]
        integers = known[w.input[0]].astype(np.int64)
        integers = (
            integers if any(a.name == "transB" and a.i for a in node.attribute) else integers.T
        )
        values = kept[x.input[0]].astype(np.int64)
        pairs = (
            values[:, None, 0::2] * integers[None, :, 0::2]
            + values[:, None, 1::2] * integers[None, :, 1::2]
        )
        missing = (np.clip(pairs, -(2**15), 2**15 - 1) - pairs).sum(-1)
        return (found[0] + (missing * known[x.input[1]] * known[w.input[1]]).astype(np.float32),)

    session.observe(observe)
    return session


def test_saturation_of_a_cpu_without_vnni_is_named_and_seven_bits_cure_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from onnxproof import runtimes
    from onnxproof.runtimes import Description

    class Old:
        def open(self, model: Path, option: str = "") -> Any:
            return saturating(model)

        def describe(self) -> Description:
            return Description(name="old", about="a CPU without VNNI", installed=True)

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    ).eval()
    net[0].weight.data = net[0].weight.data.abs().clamp(min=0.2)
    from support.quantized_faults import Fault

    module, path, x = made(
        Fault(cause="quant-saturation", module=lambda: net, shape=(16,), serve=np.abs), tmp_path
    )
    monkeypatch.setitem(runtimes._registered, "old", Old())
    proof = onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": x},
        policy=FINITE,
        budget_s=20,
        only=("example", "data-data"),
        backends=("old",),
    )
    assert proof.verdict is Verdict.DIVERGED
    assert proof.causes and proof.causes[0].code == "quant-saturation" and proof.causes[0].proven, [
        (c.code, c.evidence) for c in proof.causes
    ]
    assert "seven-bit weights" in proof.causes[0].evidence
    healthy = onnxproof.verify(
        module,
        path,
        (torch.from_numpy(x[:2]),),
        dynamic_shapes=({0: "batch"},),
        data={"x": x},
        policy=FINITE,
        budget_s=20,
        only=("example", "data-data"),
    )
    assert (
        healthy.verdict is Verdict.FAITHFUL
    )  # on a CPU that adds in 32 bits nothing is wrong with the file
