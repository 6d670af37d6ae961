"""The study of a quantized candidate: on which samples, with which weights, and when a change counts as the cause."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.fake_reference import FakeReference
from support.module_workbenches import file_of, node
from support.workbenches import workbench

from onnxproof.diagnosis.counterfactuals import quantized_study
from onnxproof.diagnosis.counterfactuals.workbench import Means, Tried, Workbench
from onnxproof.errors import OnnxproofError
from onnxproof.options import Policy
from onnxproof.quantization.attribution import Study
from onnxproof.reference.subject import Subject
from onnxproof.results import Gap, NoiseKind, Status

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 8)).astype(np.float32)
W = RNG.normal(size=(8, 3)).astype(np.float32)
GAP = Gap(
    case="case",
    group="ordinary",
    backend="ort",
    output="y",
    status=Status.COMPARED,
    noise_kind=NoiseKind.SIMULATED,
)


def product(inputs: Mapping[str, Any]) -> list[Any]:
    return [inputs["x"] @ W]


def float_file(name: str = "x") -> onnx.ModelProto:
    return file_of([node("MatMul", name, "w")], {name: X}, {"w": W})


def quantized_file(scale: float) -> onnx.ModelProto:
    """The input is rounded to 8 bits with this scale, and the weights are float."""
    constants = {"scale": np.array(scale, np.float32), "zero": np.array(128, np.uint8), "w": W}
    nodes = [
        node("QuantizeLinear", "x", "scale", "zero", output="q"),
        node("DequantizeLinear", "q", "scale", "zero", output="dq"),
        node("MatMul", "dq", "w"),
    ]
    return file_of(nodes, {"x": X}, constants)


def bench_of(
    folder: Path, *, scale: float = 0.002, gap: Gap | None = GAP, **options: Any
) -> Workbench:
    """With a scale of 0.002 a value beyond 0.26 is cut off."""
    reference = FakeReference(product, example={"x": X})
    bench = workbench(
        folder, quantized_file(scale), X @ W, {"x": X}, reference=reference, **options
    )
    bench.scene = replace(bench.scene, gap=gap)
    return bench


def study_of(bench: Workbench) -> Study:
    found = quantized_study.study(bench)
    assert not isinstance(found, str)
    return found


@pytest.mark.parametrize("gap", [None, replace(GAP, noise_kind=NoiseKind.DOUBLE)])
def test_a_file_that_quantizes_nothing_has_no_study(gap: Gap | None, tmp_path: Path) -> None:
    bench = bench_of(tmp_path, gap=gap)
    words = "the file quantizes nothing that the reference does not"
    assert quantized_study.study(bench) == words
    assert quantized_study.waterfall(bench) == ()


def test_without_data_the_witness_is_the_sample_and_the_study_is_opened_once(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path)
    study = study_of(bench)
    ((label, batch),) = study.samples
    assert label == "0"
    assert np.array_equal(batch["x"], X)
    assert np.allclose(study.reference_outputs[0][0], X @ W)
    assert study_of(bench) is study
    assert study_of(bench_of(tmp_path)) is not study


def test_the_first_sixteen_of_the_users_data_are_the_samples(tmp_path: Path) -> None:
    data = [{"x": X * k} for k in range(20)]
    study = study_of(bench_of(tmp_path, subject=Subject(data=data)))
    assert len(study.samples) == 16
    assert np.array_equal(study.samples[3][1]["x"], X * 3)
    assert np.allclose(study.reference_outputs[3][0], 3 * X @ W, atol=1e-5)


@pytest.mark.parametrize("data", [iter([{"x": X * 2}]), []], ids=["an iterator", "no data"])
def test_data_that_is_used_up_or_empty_leaves_the_witness(data: Any, tmp_path: Path) -> None:
    study = study_of(bench_of(tmp_path, subject=Subject(data=data)))
    assert [np.array_equal(batch["x"], X) for _, batch in study.samples] == [True]


def test_the_float_weights_come_from_the_reference_file(tmp_path: Path) -> None:
    onnx.save(float_file(), tmp_path / "float.onnx")
    bench = bench_of(tmp_path, subject=Subject(onnx=tmp_path / "float.onnx"))
    assert np.array_equal(study_of(bench).floats["w"], W)
    graph = quantized_study.float_graph(bench)
    assert graph is not None
    assert [n.op_type for n in graph.graph.node] == ["MatMul"]


def test_the_float_weights_of_a_module_come_from_its_export(tmp_path: Path) -> None:
    def export(subject: Subject, path: Path) -> None:
        onnx.save(float_file(), path)

    subject = Subject(module="a module")
    bench = bench_of(tmp_path, subject=subject, means=Means(export_float=export))
    assert np.array_equal(study_of(bench).floats["w"], W)


def test_a_module_that_can_not_be_exported_is_studied_without_float_weights(
    tmp_path: Path,
) -> None:
    def refuse(subject: Subject, path: Path) -> None:
        raise OnnxproofError("export", "no")

    subject = Subject(module="a module")
    bench = bench_of(tmp_path, subject=subject, means=Means(export_float=refuse))
    assert study_of(bench).floats == {}
    assert quantized_study.float_graph(bench) is None
    without = bench_of(tmp_path, subject=subject)
    assert study_of(without).floats == {}


def test_a_change_that_heals_the_loss_is_the_cause_and_half_a_change_is_likely(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, policy=Policy(drift_db=30.0))
    study = study_of(bench)
    assert study.graph_db < 10

    def granted(scale: float | None) -> Tried | str:
        model = None if scale is None else quantized_file(scale)
        return quantized_study.granted(bench, study, model, what="narrow", fix="widen")

    healed = granted(0.025)  # all values up to 3.2, rounded by 0.007 rms
    assert isinstance(healed, Tried)
    assert healed.proven
    assert healed.model is not None
    assert healed.evidence.startswith(f"narrow: {study.graph_db:.1f} dB become ")
    assert healed.error_left is not None
    assert healed.error_left < 10 ** (-30 / 20)
    half = granted(0.008)  # up to 1.0
    assert isinstance(half, Tried)
    assert not half.proven
    assert half.model is None
    assert granted(0.002) == "it would recover 0.0 dB"
    assert granted(None) == "there is nothing to change"


def test_a_graph_that_is_as_good_as_others_has_no_loss_to_explain(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, scale=0.025, policy=Policy(drift_db=30.0))
    study = study_of(bench)
    words = quantized_study.granted(bench, study, quantized_file(0.02), what="", fix="")
    assert words == (
        f"with {study.graph_db:.1f} dB the graph is as good as healthy quantized models are"
    )


def test_a_float_graph_of_other_inputs_is_not_quantized_anew(tmp_path: Path) -> None:
    onnx.save(float_file("other"), tmp_path / "float.onnx")
    bench = bench_of(tmp_path, subject=Subject(onnx=tmp_path / "float.onnx"))
    assert quantized_study.requantized(bench, study_of(bench)) is None


def test_the_reference_quantized_anew_is_better_than_a_narrow_range(tmp_path: Path) -> None:
    onnx.save(float_file(), tmp_path / "float.onnx")
    bench = bench_of(tmp_path, subject=Subject(onnx=tmp_path / "float.onnx"))
    study = study_of(bench)
    model = quantized_study.requantized(bench, study)
    assert model is not None
    assert "QuantizeLinear" in {n.op_type for n in model.graph.node}
    assert study.sqnr_db(model) > study.graph_db + 15


def test_the_shares_of_a_waterfall_add_up(tmp_path: Path) -> None:
    shares = quantized_study.waterfall(bench_of(tmp_path))
    assert sum(share.share for share in shares) == pytest.approx(1.0)
    largest = max(shares, key=lambda share: share.share)
    assert largest.code == "calibration"  # the range is too narrow for the data
